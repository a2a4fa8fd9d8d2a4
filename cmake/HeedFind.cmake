# Finds packages in the same way for heed's own build and for find_package(heed).

# xtensor, xtl and xsimd change their behaviour between releases, sometimes without an error from the compiler.
option(HEED_UNTRIED_VERSIONS "Accept versions of xsimd, xtensor and xtl that heed was not tested with" OFF)

# heed_check_version(PACKAGE VERSION ...): checks a package against the versions that heed was tested with, oldest
# first. A version between the oldest and the newest is accepted if it is of the same series (13 for 13.2, 0.25 for
# 0.25) as one of the versions.
function(heed_check_version package)
  set(known FALSE)
  string(REGEX MATCH "^(0[.])?[0-9]+" series "${${package}_VERSION}")
  string(REGEX MATCH "^[0-9]+[.][0-9]+" version "${${package}_VERSION}")
  foreach(tried ${ARGN})
    if(tried MATCHES "^(0[.])?[0-9]+" AND CMAKE_MATCH_0 STREQUAL series)
      set(known TRUE)
    endif()
  endforeach()
  list(GET ARGN 0 oldest)
  list(GET ARGN -1 newest)
  if(NOT HEED_UNTRIED_VERSIONS AND (NOT known OR version VERSION_LESS oldest OR version VERSION_GREATER newest))
    list(JOIN ARGN ", " tried)
    message(FATAL_ERROR "${package} is ${${package}_VERSION} (${${package}_DIR}); heed was tested with ${tried}. "
                        "-DHEED_UNTRIED_VERSIONS=ON accepts it; then run heed's tests")
  endif()
endfunction()

macro(heed_find_xtensor)
  find_package(xtl REQUIRED)  # must precede xsimd and xtensor
  heed_check_version(xtl 0.7 0.8)
  find_package(xtensor REQUIRED)
  heed_check_version(xtensor 0.24 0.25 0.27)
endmacro()

# Boost's own package, which every Boost since 1.70 has. Newer CMake versions support no other way, and warn unless the
# policy is set.
macro(heed_find_boost)
  if(POLICY CMP0167)
    cmake_policy(SET CMP0167 NEW)
  endif()
  find_package(Boost ${ARGN} COMPONENTS iostreams filesystem)
endmacro()

# heed::hdf5: from pkg-config, or else from CMake's own search, which runs h5cc.
macro(heed_find_hdf5)
  if(NOT TARGET heed::hdf5)
    add_library(heed::hdf5 INTERFACE IMPORTED)
    pkg_search_module(HEED_HDF5 QUIET IMPORTED_TARGET hdf5 hdf5-serial)
    if(HEED_HDF5_FOUND)
      set_property(TARGET heed::hdf5 PROPERTY INTERFACE_LINK_LIBRARIES PkgConfig::HEED_HDF5)
    else()
      enable_language(C)  # the search compiles a program in C
      find_package(HDF5 REQUIRED COMPONENTS C)
      set_property(TARGET heed::hdf5 PROPERTY INTERFACE_LINK_LIBRARIES hdf5::hdf5)
    endif()
  endif()
endmacro()
