# heed_flags: how heed's own sources are compiled. Never -ffast-math: isnan must work, and one such library sets
# flush-to-zero for the whole process. FMA contraction is off, so that g++ and clang round alike; kernels say fma.
add_library(heed_flags INTERFACE)
target_compile_options(heed_flags INTERFACE
  -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wno-psabi -fno-math-errno -fno-trapping-math -ffp-contract=off)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # False alarms from the AVX-512 headers, and from "text" + std::string (GCC bug 105651).
  target_compile_options(heed_flags INTERFACE -Wno-maybe-uninitialized -Wno-restrict)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options(--param=ggc-min-heapsize=524288)  # KiB: the compiler throws away less often, a twentieth of its time
endif()
# In the place of CMake's default; flags that a user or a parent project chose stay. Kernels have -O3, tests and examples,
# which spend no time in their own code, -O1.
if(PROJECT_IS_TOP_LEVEL AND CMAKE_CXX_FLAGS_RELEASE STREQUAL "-O3 -DNDEBUG")
  set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
endif()

if(HEED_SANITIZE)
  add_compile_options(-fsanitize=${HEED_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${HEED_SANITIZE})
  if(HEED_SANITIZE MATCHES "address")
    # Checks of every pointer take a third of a build, and say nothing that the address sanitizer does not.
    add_compile_options(-fno-sanitize=null,object-size,vptr,pointer-overflow,nonnull-attribute,returns-nonnull-attribute)
  endif()
endif()

find_program(HEED_CCACHE ccache)
if(HEED_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Precompiled headers keep ccache working only so. CCACHE_DEPEND: no source is preprocessed for ccache alone.
  add_compile_options($<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_DEPEND=1 CCACHE_SLOPPINESS=pch_defines,time_macros ${HEED_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${HEED_CCACHE})
endif()

# Each access calls the address sanitizer's check instead of having it in line, which takes a fifth of the time to compile.
set(HEED_CALL_ADDRESS_CHECKS "$<$<CXX_COMPILER_ID:GNU>:--param=asan-instrumentation-with-call-threshold=0>"
                             "$<$<CXX_COMPILER_ID:Clang>:SHELL:-mllvm -asan-instrumentation-with-call-threshold=0>")

# heed_sanitize_lightly(): for the code of a folder that uses the library. What the sanitizers say of the library stays; what
# they would say of the scopes in this code, which doubles the time it takes to compile, is left out. The library has its
# checks in line: calls would make it a third to a half slower.
macro(heed_sanitize_lightly)
  if(HEED_SANITIZE MATCHES "address")
    add_compile_options(-fno-sanitize=alignment -fno-sanitize-address-use-after-scope -g0)
    add_compile_options(${HEED_CALL_ADDRESS_CHECKS})
  endif()
endmacro()
