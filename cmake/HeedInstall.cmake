# What an installed heed consists of: headers (without the kernels' own), the library, and what find_package(heed) reads.
include(CMakePackageConfigHelpers)

install(TARGETS heed heed_xtensor heed_packages heed_flags EXPORT heedTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
foreach(folder core autograd layers optim data)
  install(DIRECTORY ${folder}/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/heed/${folder} FILES_MATCHING PATTERN "*.hpp" PATTERN "kernels" EXCLUDE)
endforeach()
install(FILES core/kernels/dispatch.hpp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/heed/core/kernels)
install(FILES heed.hpp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/heed)
install(EXPORT heedTargets NAMESPACE heed:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/heed)
configure_package_config_file(cmake/heedConfig.cmake.in ${PROJECT_BINARY_DIR}/heedConfig.cmake INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/heed)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/heedConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/heedConfig.cmake ${PROJECT_BINARY_DIR}/heedConfigVersion.cmake DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/heed)
