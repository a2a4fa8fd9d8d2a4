#include <heed/data/stories.hpp>

namespace heed {

StoryWords StoryWords::all() {
  return {
      .girls = {"Mia", "Ana", "Lily", "Rosa", "Nora", "Zoe", "Ivy", "Emma", "Ada", "Eva", "Lucy", "Ruby", "Tess",
                "Kate", "Vera", "Jane"},
      .boys = {"Tom", "Ben", "Sam", "Max", "Leo", "Finn", "Jack", "Paul", "Noah", "Otto", "Hugo", "Carl", "Luke", "Dan",
               "Gus", "Bob"},
      .things = {"key",  "cup",  "hat", "drum", "kite", "ring", "ball", "bell", "book",  "doll", "coin",
                 "map",  "lamp", "fan", "shoe", "comb", "vase", "flag", "rope", "pear",  "plum", "nut",
                 "mask", "sock", "toy", "jar",  "pen",  "gem",  "cake", "lute", "spoon", "wig"},
      .colours = {"red", "blue", "gold", "green", "black", "white", "pink", "tiny", "new", "big", "shiny", "funny"},
      .prepositions = {"in", "on", "by", "under"},
      .spots = {"box", "bed",   "cart", "boat",  "tent", "tree", "shed", "bush", "sofa", "barn", "chest", "sled",
                "tub", "wagon", "hut",  "crate", "van",  "nest", "sink", "bag",  "pram", "rug",  "desk",  "well"},
      .lands = {"lake", "mill", "park", "farm", "shop", "fair", "sea", "pond", "inn", "fort", "zoo", "pier", "port",
                "dock", "river", "school"},
      .asides = {"It rained.", "The wind blew.", "A dog barked.", "The sun shone.", "Birds sang.", "Snow fell.",
                 "Bees hummed.", "The moon rose.", "A cat purred.", "An owl cried.", "A frog hopped by.",
                 "All was still."},
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
