// The grammar of the built-in stories.
#include <algorithm>
#include <cctype>
#include <heed/core/check.hpp>
#include <heed/data/tasks.hpp>

namespace heed {

namespace {

constexpr std::size_t kNone = static_cast<std::size_t>(-1);

struct Place {
  std::size_t preposition = kNone, spot = kNone;
};

struct Thing {
  std::size_t word = kNone;
  Place place;                 // valid while nobody holds the thing
  std::size_t holder = kNone;  // a person
  std::size_t fact = 0;        // position in the text of the place or the holder
  bool asked = false;
};

struct Person {
  std::size_t name = kNone;
  std::size_t land = kNone;
  std::size_t fact = 0;
  bool asked = false;
};

// The options of one choice, each with a meaning.
template <class Meaning>
class Menu {
 public:
  explicit Menu(Chooser& chooser) : chooser_(chooser) { items_.reserve(kMany); }
  void add(std::string text, double weight, Meaning meaning) {
    if (weight > 0) items_.push_back({std::move(text), weight, meaning});
  }
  Meaning choose() {
    std::vector<Option> options;
    options.reserve(items_.size());
    for (const Item& item : items_) options.push_back({item.text, item.weight});
    return items_[chooser_.choose(options)].meaning;
  }

 private:
  static constexpr std::size_t kMany = 32;  // options of most choices

  struct Item {
    std::string text;
    double weight;
    Meaning meaning;
  };
  Chooser& chooser_;
  std::vector<Item> items_;
};

// One story. Each function produces a part of a sentence and makes the choices in it.
class StoryGenerator {
 public:
  StoryGenerator(Chooser& chooser, const StoryWords& words, const StoryOptions& options,
                 std::vector<StoryQuestion>* questions)
      : t_(chooser), w_(words), o_(options), questions_(questions), names_(words.girls) {
    names_.insert(names_.end(), words.boys.begin(), words.boys.end());
  }

  void story() {
    while (event()) ++events_;
    while (true) {
      question();
      Menu<bool> more(t_);
      more.add("\n", 0.2, false);
      more.add(" ", events_ < o_.max_events && can_ask() ? 0.8 : 0, true);
      if (!more.choose()) return;
      t_.append("Wh");
    }
  }

 private:
  enum class Start { name, pronoun, aside, question };
  enum class Verb { put, find, go, move, take, give };

  // Produces a sentence about an event. Returns false if the story turns to its questions instead, after "Wh".
  bool event() {
    Menu<std::pair<Start, std::size_t>> start(t_);
    static constexpr double kEnough[] = {0, 0.05, 0.6};  // share of stories that end, by number of events
    const double question_share = events_ >= o_.max_events ? 1 : kEnough[std::min(events_, 2)],
                 other_share = 1 - question_share;
    if (can_ask()) start.add("Wh", question_share, {Start::question, 0});
    if (events_ < o_.max_events) name_options(start, other_share);
    const auto [kind, i] = start.choose();
    if (kind == Start::question) return false;
    if (kind == Start::aside) return has_aside_ = true;
    if (kind == Start::name) subject_ = person(i);
    predicate();
    return true;
  }

  void name_options(Menu<std::pair<Start, std::size_t>>& start, double share) {
    const bool first = people_.empty();
    const double pronoun = first ? 0 : 0.4, aside = first || has_aside_ ? 0 : 0.1, known = first ? 0 : 0.1;
    const double any = 1 - pronoun - aside - known;
    if (!first) start.add(subject_is_girl() ? "She" : "He", share * pronoun, {Start::pronoun, 0});
    for (const std::string& text : w_.asides)
      start.add(text + " ", share * aside / static_cast<double>(w_.asides.size()), {Start::aside, 0});
    for (std::size_t n = 0; n < names_.size(); ++n) {
      const bool in_story = std::any_of(people_.begin(), people_.end(), [n](const Person& p) { return p.name == n; });
      start.add(names_[n],
                share * (any / static_cast<double>(names_.size()) +
                         (in_story ? known / static_cast<double>(people_.size()) : 0)),
                {Start::name, n});
    }
  }

  void predicate() {
    const auto held = [&](const Thing& x) { return x.holder == subject_; };
    const auto not_held = [&](const Thing& x) { return x.holder != subject_; };
    const auto placed = [](const Thing& x) { return x.holder == kNone; };
    Menu<Verb> verb(t_);
    for (const char* text : {" put ", " hid ", " left ", " set ", " laid ", " kept "}) verb.add(text, 1, Verb::put);
    verb.add(" found a ", 1, Verb::find);
    for (const char* text : {" ran to the ", " went to the "}) verb.add(text, 0.7, Verb::go);
    verb.add(" moved ", any_thing(placed) ? 1.5 : 0, Verb::move);
    verb.add(" took ", any_thing(not_held) ? 0.4 : 0, Verb::take);
    verb.add(" gave ", any_thing(held) ? 2 : 0, Verb::give);
    switch (verb.choose()) {
      case Verb::put: return place(object(held, 3, true));
      case Verb::find: return hold(new_thing(), subject_, subject_position_);
      case Verb::go: return go();
      case Verb::move: return place(object(placed, 1, false));
      case Verb::take: return hold(object(not_held, 1, false), subject_, subject_position_);
      case Verb::give: return give(object(held, 1, false));
    }
  }

  // "a red key", "the key" or "it" (the last thing mentioned). Known things must fit; each kind of them has weight
  // `known`.
  template <class Fits>
  std::size_t object(Fits fits, double known, bool may_be_new) {
    Menu<std::size_t> menu(t_);
    if (may_be_new) menu.add("a ", 2, kNone);
    const auto n = static_cast<double>(std::count_if(things_.begin(), things_.end(), fits));
    for (std::size_t i = 0; i < things_.size(); ++i) {
      if (!fits(things_[i])) continue;
      menu.add("the " + w_.things[things_[i].word], known / n, i);
      if (i == last_thing_) menu.add("it", 2 * known, i);
    }
    const std::size_t i = menu.choose();
    return last_thing_ = i == kNone ? new_thing() : i;
  }

  std::size_t new_thing() {
    Menu<std::pair<bool, std::size_t>> menu(t_);
    for (const std::string& colour : w_.colours)
      menu.add(colour + " ", 0.5 / static_cast<double>(w_.colours.size()), {true, 0});
    add_new_things(menu, 0.5);
    auto [coloured, word] = menu.choose();
    if (coloured) {
      Menu<std::pair<bool, std::size_t>> noun(t_);
      add_new_things(noun, 1);
      word = noun.choose().second;
    }
    things_.emplace_back().word = word;
    return last_thing_ = things_.size() - 1;
  }

  void add_new_things(Menu<std::pair<bool, std::size_t>>& menu, double share) {
    for (std::size_t k = 0; k < w_.things.size(); ++k)
      if (!any_thing([k](const Thing& x) { return x.word == k; }))
        menu.add(w_.things[k], share / static_cast<double>(w_.things.size()), {false, k});
  }

  // " under the bed. " Each thing has a usual spot and a usual preposition, which are more frequent. So, as in other
  // texts, words predict each other. A model that has learned these correlations learns more easily to look back.
  void place(std::size_t i) {
    Thing& x = things_[i];
    const bool placed_before = x.holder == kNone && x.place.spot != kNone;  // then the thing moves to another spot
    Place to;
    t_.append(" ");
    x.fact = t_.position();
    Menu<std::size_t> preposition(t_), spot(t_);
    const std::size_t usual_preposition = x.word % w_.prepositions.size(), usual_spot = x.word % w_.spots.size();
    for (std::size_t k = 0; k < w_.prepositions.size(); ++k)
      preposition.add(w_.prepositions[k] + " the ", k == usual_preposition ? 3 : 1, k);
    to.preposition = preposition.choose();
    for (std::size_t k = 0; k < w_.spots.size(); ++k)
      spot.add(w_.spots[k] + ". ", placed_before && k == x.place.spot ? 0 : k == usual_spot ? 8 : 1, k);
    to.spot = spot.choose();
    x.place = to;
    x.holder = kNone;
  }

  void hold(std::size_t i, std::size_t holder, std::size_t fact) {
    things_[i].holder = holder;
    things_[i].fact = fact;
    things_[i].place = {};
    t_.append(". ");
  }

  void give(std::size_t i) {
    t_.append(" to ");
    const std::size_t fact = t_.position();
    Menu<std::size_t> recipient(t_);
    for (std::size_t n = 0; n < names_.size(); ++n) recipient.add(names_[n], n == people_[subject_].name ? 0 : 1, n);
    hold(i, person_index(recipient.choose()), fact);
  }

  void go() {
    Person& p = people_[subject_];
    p.fact = t_.position();
    Menu<std::size_t> land(t_);
    for (std::size_t k = 0; k < w_.lands.size(); ++k)
      land.add(w_.lands[k] + ". ", k == p.land && w_.lands.size() > 1 ? 0 : 1, k);
    p.land = land.choose();
  }

  // The rest of a question, after "Wh", and its answer.
  void question() {
    StoryQuestion q{.question = t_.position() - 2};
    const auto placed = [](const Thing& x) { return !x.asked && x.holder == kNone; };
    const auto held = [](const Thing& x) { return !x.asked && x.holder != kNone; };
    const auto gone = [](const Person& p) { return !p.asked && p.land != kNone; };
    Menu<bool> kind(t_);
    kind.add("ere is ", any_thing(placed) ? 2 : std::any_of(people_.begin(), people_.end(), gone) ? 1 : 0, false);
    kind.add("o has ", any_thing(held) ? 1 : 0, true);
    const bool who = kind.choose();
    Menu<std::pair<bool, std::size_t>> about(t_);
    for (std::size_t i = 0; i < things_.size(); ++i)
      if (who ? held(things_[i]) : placed(things_[i]))
        about.add("the " + w_.things[things_[i].word] + "? ", 2, {true, i});
    for (std::size_t i = 0; i < people_.size() && !who; ++i)
      if (gone(people_[i])) about.add(names_[people_[i].name] + "? ", 1, {false, i});
    const auto [thing, i] = about.choose();
    q.answer = t_.position();
    q.fact = thing ? things_[i].fact : people_[i].fact;
    if (who)
      t_.append(names_[people_[things_[i].holder].name] + ".");
    else if (thing)
      answer(things_[i].place);
    else
      t_.append("At the " + w_.lands[people_[i].land] + ".");
    (thing ? things_[i].asked : people_[i].asked) = true;
    q.answer_end = t_.position();
    if (questions_) questions_->push_back(q);
  }

  void answer(const Place& place) {
    std::string text = w_.prepositions[place.preposition] + " the " + w_.spots[place.spot] + ".";
    text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
    t_.append(text);
  }

  template <class Test>
  bool any_thing(Test test) const {
    return std::any_of(things_.begin(), things_.end(), test);
  }
  bool subject_is_girl() const { return people_[subject_].name < w_.girls.size(); }
  bool can_ask() const {
    return any_thing([](const Thing& x) { return !x.asked; }) ||
           std::any_of(people_.begin(), people_.end(), [](const Person& p) { return p.land != kNone && !p.asked; });
  }

  std::size_t person_index(std::size_t name) {
    for (std::size_t i = 0; i < people_.size(); ++i)
      if (people_[i].name == name) return i;
    people_.emplace_back().name = name;
    return people_.size() - 1;
  }
  std::size_t person(std::size_t name) {
    subject_position_ = t_.position() - names_[name].size();
    return person_index(name);
  }

  Chooser& t_;
  const StoryWords& w_;
  const StoryOptions& o_;
  std::vector<StoryQuestion>* questions_;
  std::vector<std::string> names_;  // girls first
  std::vector<Person> people_;
  std::vector<Thing> things_;
  std::size_t subject_ = kNone, subject_position_ = 0, last_thing_ = kNone;
  int events_ = 0;
  bool has_aside_ = false;
};

}  // namespace

void Stories::generate(Chooser& chooser, std::vector<StoryQuestion>* questions) const {
  StoryGenerator(chooser, words_, options_, questions).story();
}

}  // namespace heed
