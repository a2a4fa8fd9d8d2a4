# heed_kernels(NAME TABLES tables.cpp SOURCES *.kernel.cpp BF16 *.dot.cpp): sources that are compiled once per instruction
# set, each time in a namespace of that name, with the sources that list their tables. Makes a library of objects per level,
# NAME_<level>, and one of tables, NAME; the variable NAME_objects holds what to link. The sources include only xsimd and C
# headers: an inline function of another header, compiled for AVX-512 and kept by the linker, would crash the program on a
# machine without it.

# A level is compiled for its own instruction set and no other, whatever CMAKE_CXX_FLAGS say (-march=native, -mavx512f): what
# follows them takes that back first.
set(HEED_LEVEL_RESET "")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(HEED_LEVEL_RESET -march=x86-64 -mno-sse3)  # all later extensions of vectors go with SSE3
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  set(HEED_LEVEL_RESET -march=armv8-a)
endif()

# The levels, and the flags of each. avx512_bf16 is avx512 with other products of bf16.
set(HEED_LEVELS baseline)
set(HEED_FLAGS_baseline $<$<CONFIG:Release>:-O2>)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND HEED_LEVELS avx2 avx512)
  set(HEED_FLAGS_avx2 -mavx2 -mfma -mf16c)
  set(HEED_FLAGS_avx512 -mavx512f -mavx512cd -mavx512dq -mavx512bw -mavx512vl -mfma -mprefer-vector-width=512)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 16 AND CMAKE_CXX_COMPILER_VERSION
                                                                                                        VERSION_LESS 17)
    message(STATUS "heed: without the level avx512_bf16, whose vectors crash clang 16 (LLVM #68117)")
  else()
    list(APPEND HEED_LEVELS avx512_bf16)
    set(HEED_FLAGS_avx512_bf16 ${HEED_FLAGS_avx512} -mavx512bf16)
  endif()
endif()
list(TRANSFORM HEED_LEVELS PREPEND HEED_HAS_ OUTPUT_VARIABLE definitions)
target_compile_definitions(heed_flags INTERFACE ${definitions})  # see core/kernels/table.hpp

function(heed_kernels name)
  cmake_parse_arguments(ARG "" "" "TABLES;SOURCES;BF16" ${ARGN})
  add_library(${name} OBJECT ${ARG_TABLES})
  set(objects $<TARGET_OBJECTS:${name}>)
  target_link_libraries(${name} PRIVATE heed_flags)
  target_include_directories(${name} PRIVATE ${PROJECT_BINARY_DIR}/include ${PROJECT_SOURCE_DIR})
  foreach(level ${HEED_LEVELS})
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
      # As of the checks of pointers (cmake/HeedOptions.cmake). Kernels return no pointer to a local array, and their indices are
      # checked before they are called. A report names the function without its line.
      target_compile_options(${target} PRIVATE -g0 -fno-sanitize=alignment,signed-integer-overflow
                             -fno-sanitize-address-use-after-scope ${HEED_CALL_ADDRESS_CHECKS})
    endif()
    target_link_libraries(${target} PRIVATE heed_flags xsimd)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      target_compile_options(${target} PRIVATE -Wno-uninitialized)  # false alarms from the AVX-512 headers
    endif()
    target_include_directories(${target} PRIVATE ${PROJECT_BINARY_DIR}/include ${PROJECT_SOURCE_DIR})
    list(LENGTH sources count)
    if(count GREATER 1)
      target_precompile_headers(${target} PRIVATE ${PROJECT_SOURCE_DIR}/core/kernels/simd.hpp)  # xsimd takes half of the time of a small kernel
    endif()
    list(APPEND objects $<TARGET_OBJECTS:${target}>)
  endforeach()
  set(${name}_objects ${objects} PARENT_SCOPE)
endfunction()
