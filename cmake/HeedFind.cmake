# How packages are found that heed's own build and find_package(heed) look for alike.

# xtensor, xtl and xsimd change what they promise from release to release, in part without a word from the compiler.
option(HEED_UNTRIED_VERSIONS "Take versions of xsimd, xtensor and xtl that heed was not tested with" OFF)

# heed_check_version(PACKAGE VERSION ...): the versions that heed was tested with, oldest first. What lies between the ends
# is taken where it is of the same series (13 of 13.2, 0.25 of 0.25) as one of them.
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
                        "-DHEED_UNTRIED_VERSIONS=ON takes it all the same: then run heed's tests")
  endif()
endfunction()

macro(heed_find_xtensor)
  find_package(xtl REQUIRED)  # before xsimd and xtensor
  heed_check_version(xtl 0.7 0.8)
  find_package(xtensor REQUIRED)
  heed_check_version(xtensor 0.24 0.25 0.27)
endmacro()

# Boost by its own package, as every Boost since 1.70 has one. Newer CMakes have no other way, and warn where the old one is
# not given up.
macro(heed_find_boost)
  if(POLICY CMP0167)
    cmake_policy(SET CMP0167 NEW)
  endif()
  find_package(Boost ${ARGN} COMPONENTS iostreams filesystem)
endmacro()

# heed::hdf5: as pkg-config knows it, or else as CMake's own search finds it, which asks h5cc.
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
