// Whether a file could be written, found without opening one for writing. Internal.
#pragma once
#include <filesystem>
#include <heed/data/files.hpp>
#include <string>

namespace heed::detail {

// The file that a name leads to, existing or not: the target of a link, and so on.
std::filesystem::path followed(std::filesystem::path path);

// Kind of a file that is not a regular one, "a folder"; empty where it is one, or does not exist.
const char* unusual_kind(const std::filesystem::path& path);

// Whether the file is written as it is, neither cut nor synced: a pipe or a character device.
bool is_stream(const std::filesystem::path& path);

// path.tmp and path.lock
std::filesystem::path beside(std::filesystem::path path, const char* ending);

// Content of a lock that heed made. A lock without content may be a user's file: it is used, and left there.
inline constexpr char kLockMark[] = "a lock of heed, which a program that was killed may have left\n";

// Why a file of this role, which is written, cannot be; empty where nothing speaks against it.
std::string target_problem(const std::filesystem::path& path, FileRole role);

}  // namespace heed::detail
