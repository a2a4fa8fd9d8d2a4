# heed_packages: packages that heed's own sources use. heed_xtensor: packages for programs that include
# <heed/core/array.hpp>.
include(HeedFind)
find_package(TBB REQUIRED)
heed_find_xtensor()
find_package(xsimd REQUIRED)
heed_check_version(xsimd 8.1 12.1 13.2 14.3)
find_package(PkgConfig REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(ZLIB REQUIRED)
heed_find_hdf5()
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(SENTENCEPIECE REQUIRED IMPORTED_TARGET sentencepiece)
pkg_check_modules(ICU REQUIRED IMPORTED_TARGET icu-i18n icu-uc)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)

add_library(heed_packages INTERFACE)
target_link_libraries(heed_packages INTERFACE TBB::tbb nlohmann_json::nlohmann_json heed::hdf5 ZLIB::ZLIB PkgConfig::XXHASH
                      PkgConfig::SENTENCEPIECE PkgConfig::ICU PkgConfig::PCRE2)

# Without this flag, xtensor before 0.25 corrupts memory with g++ in C++20 mode, because of a guard by __cplusplus in
# xexpression_traits.hpp. core/array.hpp stops the compile if the flag is missing.
add_library(heed_xtensor INTERFACE)
target_link_libraries(heed_xtensor INTERFACE xtensor)
target_compile_options(heed_xtensor INTERFACE $<$<CXX_COMPILER_ID:GNU>:-fno-new-ttp-matching>)
