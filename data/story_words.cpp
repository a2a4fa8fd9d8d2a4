#include <heed/data/stories.hpp>

namespace heed {

StoryWords StoryWords::all() {
  return {
      .girls = {"Mia", "Ana", "Lily", "Rosa", "Nora", "Zoe", "Ivy", "Emma", "Ada", "Lucy", "Ruby", "Kate"},
      .boys = {"Tom", "Ben", "Sam", "Max", "Leo", "Finn", "Jack", "Paul", "Noah", "Otto", "Hugo", "Luke"},
      .things = {"key",  "cup", "hat",  "drum", "kite", "ring", "ball", "bell", "book", "doll", "coin", "map",
                 "lamp", "fan", "shoe", "comb", "vase", "flag", "rope", "pear", "nut",  "mask", "jar",  "fork"},
      .colours = {"red", "blue", "gold", "green", "black", "white", "pink", "tiny", "shiny", "funny"},
      .prepositions = {"in", "on", "by", "under"},
      .spots = {"box", "bed", "cart", "boat", "tent", "tree", "shed", "bush", "sofa", "barn", "sled", "tub", "hut",
                "van", "nest", "desk"},
      .lands = {"lake", "mill", "park", "farm", "shop", "fair", "sea", "pond", "inn", "fort", "zoo", "school"},
      .asides = {"It rained.", "The wind blew.", "A dog barked.", "The sun shone.", "Birds sang.", "Snow fell.",
                 "Bees hummed.", "The moon rose.", "A cat purred.", "An owl cried."},
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
