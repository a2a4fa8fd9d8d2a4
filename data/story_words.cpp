#include <heed/data/stories.hpp>

namespace heed {

StoryWords StoryWords::all() {
  return {
      .girls = {"Ada", "Eva", "Ivy", "Kate", "Mia", "Nora", "Rosa", "Zoe"},
      .boys = {"Ben", "Dan", "Finn", "Gus", "Jack", "Leo", "Otto", "Tom"},
      .things = {"ball", "cup", "drum", "flag", "gift", "hat", "jar", "key", "lamp", "map", "nut", "pear", "ring",
                 "shoe", "toy", "vase"},
      .colours = {"red", "blue", "gold", "pink", "tiny", "white", "shiny", "funny", "new"},
      .prepositions = {"in", "on", "by", "under"},
      .spots = {"bed", "cart", "desk", "fort", "hut", "jeep", "log", "mill", "nest", "oak", "pram", "rug", "sofa",
                "tent", "van", "well"},
      .lands = {"lake", "park", "farm", "inn", "zoo", "sea", "hill", "cave", "dock", "moor", "bay", "tower"},
      .asides = {"It rained.", "The wind blew.", "A dog barked.", "Birds sang.", "Snow fell.", "The moon rose.",
                 "A cat purred.", "Leaves fell."},
  };
}

StoryWords StoryWords::few() {
  return {.girls = {"Mia"},
          .boys = {"Tom"},
          .things = {"key", "kite"},
          .colours = {"red"},
          .prepositions = {"in"},
          .spots = {"box", "boat"},
          .lands = {"lake"},
          .asides = {"It rained."}};
}

}  // namespace heed
