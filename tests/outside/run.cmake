# Installs the build into a separate prefix, then configures, builds and runs tests/outside with this prefix only.
#   cmake -DBUILD=... -DSOURCE=... -DWORK=... -DGENERATOR=... -DCXX=... -P run.cmake
include(${CMAKE_CURRENT_LIST_DIR}/step.cmake)
file(REMOVE_RECURSE ${WORK})
step(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix)
step(${CMAKE_COMMAND} -S ${SOURCE}/tests/outside -B ${WORK}/build -G ${GENERATOR} -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_PREFIX_PATH=${WORK}/prefix
     -DPLOT=${PLOT} -DMPI=${MPI})
step(${CMAKE_COMMAND} --build ${WORK}/build)
# clang gives other warnings in a user's program.
find_program(CLANG clang++)
if(CLANG AND NOT CXX MATCHES "clang")
  step(${CMAKE_COMMAND} -S ${SOURCE}/tests/outside -B ${WORK}/by_clang -G ${GENERATOR} -DCMAKE_CXX_COMPILER=${CLANG}
       -DCMAKE_PREFIX_PATH=${WORK}/prefix)
  step(${CMAKE_COMMAND} --build ${WORK}/by_clang --target every_header)
endif()
step(${WORK}/build/your_program)
message(STATUS "${out}")
if(MPI)
  step(${WORK}/build/your_ranks)
  if(NOT out MATCHES "rank 0 of 1")
    message(FATAL_ERROR "your_ranks is not one process: ${out}")
  endif()
endif()
if(PLOT)
  step(${WORK}/build/your_picture ${WORK}/losses.svg)
  file(READ ${WORK}/losses.svg picture)
  if(NOT picture MATCHES "<svg.*validation")
    message(FATAL_ERROR "your_picture drew no losses")
  endif()
  file(GLOB component ${WORK}/prefix/lib*/cmake/heed/heedPlot* ${WORK}/prefix/lib/*/cmake/heed/heedPlot*)
  file(REMOVE ${component})
  execute_process(COMMAND ${CMAKE_COMMAND} -S ${SOURCE}/tests/outside -B ${WORK}/without -G ${GENERATOR} -DCMAKE_CXX_COMPILER=${CXX}
                          -DCMAKE_PREFIX_PATH=${WORK}/prefix -DPLOT=ON RESULT_VARIABLE code ERROR_VARIABLE said OUTPUT_QUIET)
  string(REGEX REPLACE "[ \n]+" " " said "${said}")
  if(code EQUAL 0 OR NOT said MATCHES "heed was installed without pictures: HEED_PLOT was off")
    message(FATAL_ERROR "a heed without pictures must say so:\n${said}")
  endif()
endif()

# HDF5 is also found if pkg-config does not know it.
pkg_config_without_hdf5(${WORK}/pkgconfig)
step(${CMAKE_COMMAND} -E env PKG_CONFIG_LIBDIR=${WORK}/pkgconfig
     ${CMAKE_COMMAND} -S ${SOURCE}/tests/outside -B ${WORK}/by_search -G ${GENERATOR} -DCMAKE_CXX_COMPILER=${CXX}
     -DCMAKE_PREFIX_PATH=${WORK}/prefix)
