// The words of the built-in stories.
#include <heed/data/tasks.hpp>

namespace heed {

StoryWords StoryWords::all() {
  return {
      .girls = {"Ada", "Eva", "Ivy", "Kate", "Mia", "Nora", "Rosa", "Zoe"},
      .boys = {"Ben", "Dan", "Finn", "Gus", "Jack", "Leo", "Otto", "Tom"},
      .things = {"bun", "cup", "fan", "gem", "hat", "jar", "key", "lid", "map", "nut", "pen", "rod", "saw", "toy",
                 "wig", "yam"},
      .colours = {"red", "blue", "gold", "pink", "tiny", "white", "shiny", "funny", "new", "long", "gray", "dark"},
      .prepositions = {"in", "on", "by"},
      .spots = {"mill", "well", "tent", "rug", "sofa", "cart", "van", "nest", "jeep", "oak", "desk", "fort", "log",
                "pram", "bed", "hut"},
      .lands = {"lake", "park", "farm", "inn", "zoo", "sea", "hill", "cave", "dock", "moor", "bay", "tower"},
      .asides = {"It rained.", "The wind blew.", "A dog barked.", "Birds sang.", "Snow fell.", "The moon rose.",
                 "A cat purred.", "Leaves fell."},
  };
}

}  // namespace heed
