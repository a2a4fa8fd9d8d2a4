# What heed's own configuring promises to those who configure it otherwise; nothing is compiled.
#   cmake -DSOURCE=... -DWORK=... -DGENERATOR=... -DCXX=... -P configure.cmake
cmake_policy(VERSION 3.22)
include(${CMAKE_CURRENT_LIST_DIR}/step.cmake)
file(REMOVE_RECURSE ${WORK})
pkg_config_without_hdf5(${WORK}/pkgconfig)

# As a part of another project.
step(${CMAKE_COMMAND} -E env PKG_CONFIG_LIBDIR=${WORK}/pkgconfig
     ${CMAKE_COMMAND} -S ${SOURCE}/tests/outside/parent -B ${WORK}/parent -G ${GENERATOR} -DCMAKE_CXX_COMPILER=${CXX} -DHEED=${SOURCE})
step(${CMAKE_COMMAND} --install ${WORK}/parent --prefix ${WORK}/prefix)
file(GLOB_RECURSE installed ${WORK}/prefix/*)
if(installed)
  message(FATAL_ERROR "HEED_INSTALL is off, and this was installed: ${installed}")
endif()

# A version of xsimd that nobody tried.
file(WRITE ${WORK}/untried/lib/cmake/xsimd/xsimdConfig.cmake "if(NOT TARGET xsimd)\n  add_library(xsimd INTERFACE IMPORTED)\nendif()\n")
file(WRITE ${WORK}/untried/lib/cmake/xsimd/xsimdConfigVersion.cmake "set(PACKAGE_VERSION 15.0.0)\n")
set(untried ${CMAKE_COMMAND} -S ${SOURCE} -B ${WORK}/untried_build -G ${GENERATOR} -DCMAKE_CXX_COMPILER=${CXX} -DHEED_TESTS=OFF
            -DHEED_EXAMPLES=OFF -DHEED_BENCHMARKS=OFF -DCMAKE_PREFIX_PATH=${WORK}/untried)
execute_process(COMMAND ${untried} RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE out)
string(REGEX REPLACE "[ \n]+" " " out "${out}")
if(code EQUAL 0 OR NOT out MATCHES "xsimd is 15[.]0[.]0 .*; heed was tested with 8[.]1 to 14[.]3")
  message(FATAL_ERROR "with xsimd 15.0.0, configuring must fail and name the range:\n${out}")
endif()
step(${untried} -DHEED_UNTRIED_VERSIONS=ON)
