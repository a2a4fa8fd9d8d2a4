# What an installed heed consists of: headers, the library, and what find_package(heed) reads. Headers of kernels, and
# those that include one or a package's header or are shared by a few sources, are for heed's own; tests/outside compiles all that is installed.
include(CMakePackageConfigHelpers)

install(TARGETS heed heed_xtensor EXPORT heedTargets)
if(NOT BUILD_SHARED_LIBS)  # whoever links the static library links what it uses
  install(TARGETS heed_packages heed_flags EXPORT heedTargets)
endif()
set(own_headers core/elementwise core/reduce autograd/attention_inputs autograd/cross_entropy_rows autograd/elementwise_detail
                autograd/generic_pooling autograd/key_lists
                data/checkpoint_handle data/token_header layers/attention/conformance/subject layers/attention/states/row_lengths optim/with_kernels)
list(JOIN own_headers "|" own_headers)
foreach(folder core autograd layers optim data models)
  install(DIRECTORY ${folder}/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/heed/${folder} FILES_MATCHING PATTERN "*.hpp"
          PATTERN "kernels" EXCLUDE REGEX "/(${own_headers})[.]hpp$" EXCLUDE)
endforeach()
install(FILES heed.hpp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/heed)
if(HEED_PLOT)
  install(TARGETS heed_plot EXPORT heedPlotTargets)
  install(FILES plot/plot.hpp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/heed/plot)
  install(EXPORT heedPlotTargets NAMESPACE heed:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/heed)
endif()
install(EXPORT heedTargets NAMESPACE heed:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/heed)
configure_package_config_file(cmake/heedConfig.cmake.in ${PROJECT_BINARY_DIR}/heedConfig.cmake INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/heed)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/heedConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/heedConfig.cmake ${PROJECT_BINARY_DIR}/heedConfigVersion.cmake
              cmake/HeedFind.cmake DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/heed)
