# heed_kernels(NAME TABLES tables.cpp SOURCES *.kernel.cpp BF16 *.dot.cpp): compiles kernels once per level, each time
# in a namespace of that name, and the sources that list their tables. Makes one object library per level, NAME_<level>,
# and one of the tables, NAME. The variable NAME_objects lists the objects to link. Kernels include only xsimd and C
# headers. Otherwise the linker might keep an inline function that was compiled for AVX-512, which crashes the program
# on a machine without AVX-512.

# A level is compiled for its own instruction set only, whatever CMAKE_CXX_FLAGS are (-march=native, -mavx512f): these
# flags undo them, and the flags of the level follow.
set(HEED_LEVEL_RESET "")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(HEED_LEVEL_RESET -march=x86-64 -mno-sse3)  # without SSE3, all later vector extensions are off too
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  set(HEED_LEVEL_RESET -march=armv8-a)
endif()

# The levels and their flags. avx512_bf16 is avx512 with other bf16 products.
set(HEED_FLAGS_baseline $<$<CONFIG:Release>:-O2>)
set(HEED_FLAGS_avx2 -mavx2 -mfma -mf16c)
set(HEED_FLAGS_avx512 -mavx512f -mavx512cd -mavx512dq -mavx512bw -mavx512vl -mfma -mprefer-vector-width=512)
set(HEED_FLAGS_avx512_bf16 ${HEED_FLAGS_avx512} -mavx512bf16)
set(levels baseline)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND levels avx2 avx512)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 16 AND CMAKE_CXX_COMPILER_VERSION
                                                                                                        VERSION_LESS 17)
    message(STATUS "heed: no level avx512_bf16, because its vectors crash clang 16 (LLVM #68117)")
  else()
    list(APPEND levels avx512_bf16)
  endif()
endif()

# One level compiles faster than all, but a NATIVE build runs only on machines that have its level.
set(HEED_LEVELS "ALL" CACHE STRING "Instruction sets for kernels: ALL, NATIVE: the best of this machine, or BASELINE")
set_property(CACHE HEED_LEVELS PROPERTY STRINGS ALL NATIVE BASELINE)
if(HEED_LEVELS STREQUAL "NATIVE" AND EXISTS /proc/cpuinfo)
  file(STRINGS /proc/cpuinfo flags REGEX "^flags" LIMIT_COUNT 1)
  if(flags MATCHES " avx512f .*avx512dq .*avx512cd .*avx512bw .*avx512vl")
    list(REMOVE_ITEM levels baseline avx2)
    if(NOT flags MATCHES " avx512_bf16")
      list(REMOVE_ITEM levels avx512_bf16)
    endif()
  elseif(flags MATCHES " fma .* avx2 ")
    set(levels avx2)
  else()
    set(levels baseline)
  endif()
elseif(HEED_LEVELS STREQUAL "BASELINE")
  set(levels baseline)
elseif(NOT HEED_LEVELS MATCHES "^(ALL|NATIVE)$")
  message(FATAL_ERROR "HEED_LEVELS is ${HEED_LEVELS}; it must be ALL, NATIVE or BASELINE")
endif()
set(HEED_COMPILED_LEVELS ${levels})
list(TRANSFORM levels PREPEND HEED_HAS_ OUTPUT_VARIABLE definitions)
target_compile_definitions(heed_flags INTERFACE ${definitions})  # see core/kernels/dispatch/table.hpp

function(heed_kernels name)
  cmake_parse_arguments(ARG "" "" "TABLES;SOURCES;BF16" ${ARGN})
  add_library(${name} OBJECT ${ARG_TABLES})
  set(objects $<TARGET_OBJECTS:${name}>)
  target_link_libraries(${name} PRIVATE heed_flags)
  target_include_directories(${name} PRIVATE ${PROJECT_BINARY_DIR}/include ${PROJECT_SOURCE_DIR})
  foreach(level ${HEED_COMPILED_LEVELS})
    set(sources ${ARG_SOURCES})
    if(level STREQUAL "avx512_bf16")
      set(sources ${ARG_BF16})
    endif()
    if(NOT sources)
      continue()
    endif()
    set(target ${name}_${level})
    add_library(${target} OBJECT ${sources})
    set_target_properties(${target} PROPERTIES UNITY_BUILD_MODE GROUP)
    target_compile_definitions(${target} PRIVATE HEED_LEVEL=${level} HEED_LEVEL_${level})
    target_compile_options(${target} PRIVATE $<$<CONFIG:Debug>:-O1> $<$<CONFIG:Release>:-O3> ${HEED_LEVEL_RESET} ${HEED_FLAGS_${level}})
    if(HEED_SANITIZE MATCHES "address")
      # Off for the same reason as checks of pointers (cmake/HeedOptions.cmake). Kernels return no pointer to a local
      # array, and their indices are checked before the call.
      target_compile_options(${target} PRIVATE -fno-sanitize=alignment,signed-integer-overflow
                             -fno-sanitize-address-use-after-scope)
    endif()
    target_link_libraries(${target} PRIVATE heed_flags xsimd)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      target_compile_options(${target} PRIVATE -Wno-uninitialized)  # false alarms from the AVX-512 headers
    endif()
    target_include_directories(${target} PRIVATE ${PROJECT_BINARY_DIR}/include ${PROJECT_SOURCE_DIR})
    # xsimd takes half of the compile time of a small kernel. Kernels of tests use the library's precompiled header, but
    # have other flags with sanitizers.
    list(LENGTH sources count)
    if(TARGET heed_kernels_${level} AND NOT name STREQUAL "heed_kernels" AND NOT HEED_SANITIZE)
      target_precompile_headers(${target} REUSE_FROM heed_kernels_${level})
    elseif(count GREATER 1)
      target_precompile_headers(${target} PRIVATE ${PROJECT_SOURCE_DIR}/core/kernels/simd/simd.hpp)
    endif()
    list(APPEND objects $<TARGET_OBJECTS:${target}>)
  endforeach()
  set(${name}_objects ${objects} PARENT_SCOPE)
endfunction()
