# heed_packages: what heed's own sources use. heed_xtensor: what a program that includes <heed/core/array.hpp> needs.
find_package(TBB REQUIRED)
find_package(xtl REQUIRED)  # before xsimd and xtensor
find_package(xsimd REQUIRED)
find_package(xtensor REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(nlohmann_json REQUIRED)
pkg_check_modules(HDF5 REQUIRED IMPORTED_TARGET hdf5)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(SENTENCEPIECE REQUIRED IMPORTED_TARGET sentencepiece)

add_library(heed_packages INTERFACE)
target_link_libraries(heed_packages INTERFACE TBB::tbb xsimd nlohmann_json::nlohmann_json PkgConfig::HDF5 PkgConfig::XXHASH
                                              PkgConfig::SENTENCEPIECE)

# xtensor before 0.25 and g++ in C++20 mode corrupt memory without this flag (a guard by __cplusplus in xexpression_traits.hpp);
# core/array.hpp stops the compile where it is missing.
add_library(heed_xtensor INTERFACE)
target_link_libraries(heed_xtensor INTERFACE xtensor)
target_compile_options(heed_xtensor INTERFACE $<$<CXX_COMPILER_ID:GNU>:-fno-new-ttp-matching>)
