// Reads NumPy's .npz files: the arrays that numpy.savez and numpy.savez_compressed write.
//
// Example:
//
//   std::ofstream("x.npz", std::ios::binary) << "PK\5\6" << std::string(18, '\0');  // as numpy.savez("x.npz")
//   for (const auto& [name, x] : load_npz("x.npz")) std::cout << name << ' ' << x.shape() << '\n';
#pragma once
#include <cstddef>
#include <filesystem>
#include <heed/core/members.hpp>
#include <optional>
#include <span>
#include <string>

namespace heed {

// Reads all arrays of a .npz file, under their names. The file is a ZIP archive of .npy files, stored or deflated.
// Types become those of load_npy(). The file may come from an untrusted source: all sizes and offsets are checked
// before an array is inflated. `max_bytes` limits the total size of the arrays, in the types of the file. The default
// is 64 times the size of the file, but at least 4 MiB. The tensors take up to four times this size, because int8
// becomes int32.
//
// Throws Error, which names the file and the array: if the file is missing, truncated or damaged (each array has a
// CRC), if the arrays are larger than `max_bytes`, if two arrays have one name or overlap in the file, if an array is
// encrypted or compressed by another method, if the archive has other files than .npy files, and for arrays that
// load_npy() refuses.
TensorsByName load_npz(const std::filesystem::path& file, std::optional<std::size_t> max_bytes = {});

// Reads the bytes of a .npz file in memory, which messages call `name`. Otherwise as load_npz().
TensorsByName parse_npz(std::span<const std::byte> bytes, const std::string& name,
                        std::optional<std::size_t> max_bytes = {});

}  // namespace heed
