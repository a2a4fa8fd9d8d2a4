// The normalizer of SentencePiece's models: a table of texts and what replaces them, in the form in which SentencePiece
// stores it. The texts are in a double array (Aoe 1989, as the library darts-clone writes it): a trie in one array, in
// which the node after a byte is at offset(node) xor byte.
#include <heed/data/detail/base64.hpp>
#include <heed/io/tokenizer/stages.hpp>
#include <heed/io/tokenizer/unicode.hpp>

namespace heed::detail::tokenizer {
namespace {

class Precompiled final : public Normalizer {
 public:
  explicit Precompiled(const JsonView& json) {
    json.only({"type", "precompiled_charsmap"});
    const JsonView field = json.at("precompiled_charsmap");
    path_ = field.path();
    const std::string bytes = from_base64(field.text());
    const std::size_t size = bytes.size() < 4 ? 0 : number_at(bytes, 0);  // of the double array, in bytes
    if (bytes.size() < 8 || size < 4 || size % 4 != 0 || size > bytes.size() - 4)
      field.refuse("is damaged: it must have the size of a table of 4 bytes per entry, and the table");
    for (std::size_t i = 0; i < size; i += 4) units_.push_back(number_at(bytes, 4 + i));
    texts_ = bytes.substr(4 + size);
    if (find_invalid_utf8(texts_)) field.refuse("is damaged: its texts must be UTF-8");
  }

  // A cluster of characters (with its accents) of up to 5 bytes is replaced as a whole, other clusters by character.
  // `tokenizers` replaces the whole if the table has its beginning, so the shortest one counts.
  void apply(std::string& text, bool, EncodeScratch& scratch) const override {
    std::string& made = scratch.text;
    made.clear();
    each_cluster(text, [&](std::string_view cluster) {
      constexpr std::size_t kLongest = 5;
      const bool whole = cluster.size() <= kLongest && append(made, cluster);
      for (std::size_t i = 0; !whole && i < cluster.size();) {
        const std::string_view character = cluster.substr(i, length_at(cluster, i));
        if (!append(made, character)) made += character;
        i += character.size();
      }
      scratch.check(made.size());
    });
    text.swap(made);
  }

 private:
  static std::uint32_t number_at(std::string_view bytes, std::size_t at) {
    std::uint32_t n = 0;
    for (std::size_t i = 4; i-- > 0;) n = n << 8 | byte_of(bytes, at + i);
    return n;
  }
  std::uint32_t unit(std::size_t node) const {
    require(node < units_.size(), "encode: ", path_, " of the tokenizer is damaged: it has no entry ", node);
    return units_[node];
  }
  static std::size_t offset(std::uint32_t unit) {
    return static_cast<std::size_t>(unit >> 10) << ((unit & 0x200) >> 6);
  }

  // Appends what replaces a text that begins with an entry of the table. Returns false if there is no such entry.
  bool append(std::string& to, std::string_view text) const {
    std::size_t node = offset(unit(0));
    for (std::size_t i = 0; i < text.size() && text[i] != '\0'; ++i) {
      node ^= byte_of(text, i);
      const std::uint32_t found = unit(node);
      if ((found & 0x800000FF) != byte_of(text, i)) return false;
      node ^= offset(found);
      if ((found & 0x100) == 0) continue;
      const std::size_t begin = unit(node) & 0x7FFFFFFF;
      const bool is_text = begin < texts_.size() && (byte_of(texts_, begin) & 0xC0) != 0x80;  // not within a character
      require(is_text, "encode: ", path_, " of the tokenizer is damaged: it has no text at ", begin);
      to.append(texts_, begin, texts_.find('\0', begin) - begin);
      return true;
    }
    return false;
  }

  std::string path_;
  std::vector<std::uint32_t> units_;
  std::string texts_;  // each ends with a zero byte
};

}  // namespace

std::unique_ptr<const Normalizer> make_precompiled(const JsonView& json) { return std::make_unique<Precompiled>(json); }

}  // namespace heed::detail::tokenizer
