// Checks whether a file can be written, without opening a file for writing. Internal.
#pragma once
#include <filesystem>
#include <heed/data/files.hpp>
#include <string>

namespace heed::detail {

// The file that a name refers to after following all links; it need not exist.
std::filesystem::path followed(std::filesystem::path path);

// The kind of a file that is not regular, such as "a folder"; empty if it is regular or does not exist.
const char* unusual_kind(const std::filesystem::path& path);

// Whether the file is written without truncating and syncing: a pipe or a character device.
bool is_stream(const std::filesystem::path& path);

// Appends ".tmp" or ".lock" to a path.
std::filesystem::path with_suffix(std::filesystem::path path, const char* ending);

// The content of a lock made by heed. An empty lock may be a user's file: it is used, and not removed.
inline constexpr char kLockMark[] = "a lock of heed, which a program that was killed may have left\n";

// The reason why a file cannot be written in this role; empty if it can.
std::string target_problem(const std::filesystem::path& path, FileRole role);

}  // namespace heed::detail
