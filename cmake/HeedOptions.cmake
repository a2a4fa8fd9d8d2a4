# heed_flags: the flags of heed's own sources. Never -ffast-math: isnan must work, and one library with this flag sets
# flush-to-zero for the whole process. FMA contraction is off, so that g++ and clang round alike; kernels call fma
# themselves.
add_library(heed_flags INTERFACE)
target_compile_options(heed_flags INTERFACE
  -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wno-psabi -fno-math-errno -fno-trapping-math -ffp-contract=off)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # False alarms from the AVX-512 headers, and from "text" + std::string (GCC bug 105651).
  target_compile_options(heed_flags INTERFACE -Wno-maybe-uninitialized -Wno-restrict)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options(--param=ggc-min-heapsize=524288)  # KiB: fewer garbage collections save 1/20 of the time
endif()
# Replaces CMake's default. Flags that a user or a parent project chose stay. Kernels have -O3. Tests and examples have
# -O1, because they spend no time in their own code.
if(PROJECT_IS_TOP_LEVEL AND CMAKE_CXX_FLAGS_RELEASE STREQUAL "-O3 -DNDEBUG")
  set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
endif()

if(HEED_SANITIZE)
  add_compile_options(-fsanitize=${HEED_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${HEED_SANITIZE})
  if(HEED_SANITIZE MATCHES "address")
    # Checks of every pointer take a third of a build, and find nothing that the address sanitizer does not find.
    add_compile_options(-fno-sanitize=null,object-size,vptr,pointer-overflow,nonnull-attribute,returns-nonnull-attribute)
  endif()
endif()

find_program(HEED_CCACHE ccache)
if(HEED_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # ccache needs this flag with precompiled headers. CCACHE_DEPEND: no source is preprocessed only for ccache.
  add_compile_options($<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_DEPEND=1 CCACHE_SLOPPINESS=pch_defines,time_macros ${HEED_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${HEED_CCACHE})
endif()

# heed_sanitize_lightly(): fewer checks for the code of a folder that uses the library. The library keeps its checks.
# This code is not optimised, which makes clang three to four times faster, and its checks of scopes are off. The library
# has inline checks: calls would make it slower by a third to a half.
macro(heed_sanitize_lightly)
  if(HEED_SANITIZE MATCHES "address")
    add_compile_options(-O0 -fno-sanitize=alignment -fno-sanitize-address-use-after-scope)
    add_compile_options("$<$<CXX_COMPILER_ID:GNU>:--param=asan-instrumentation-with-call-threshold=0>"
                        "$<$<CXX_COMPILER_ID:Clang>:SHELL:-mllvm -asan-instrumentation-with-call-threshold=0>")
  endif()
endmacro()

# heed_link_fast(): the programs of a folder are linked by gold where it is installed, in half of the time of GNU ld.
macro(heed_link_fast)
  find_program(HEED_GOLD ld.gold)
  if(HEED_GOLD AND NOT HEED_SANITIZE AND NOT CMAKE_CROSSCOMPILING AND NOT CMAKE_EXE_LINKER_FLAGS MATCHES "-fuse-ld")
    add_link_options(-fuse-ld=gold)
  endif()
endmacro()
