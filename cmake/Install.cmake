# What others build upon: the public headers, the libraries behind them and find_package(Ingot). The command is installed too.
#   cmake --install build --prefix /opt/ingot
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

add_library(ingot_sdk INTERFACE)
set_target_properties(ingot_sdk PROPERTIES EXPORT_NAME ingot)
target_link_libraries(ingot_sdk INTERFACE ingot_orchestrator ingot_engine ingot_text)

set(libraries
  ingot_flags ingot_core ingot_formats ingot_text ingot_grammar ingot_step ingot_collective ingot_backend ingot_cpu_linear ingot_cpu ingot_metal ingot_model_config
  ingot_model ingot_engine ingot_prefix ingot_orchestrator ingot_sdk)
if(TARGET softmetal)
  list(APPEND libraries softmetal)
endif()
install(TARGETS ${libraries} EXPORT IngotTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}/ingot COMPONENT sdk)
install(DIRECTORY include/ingot DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT sdk)

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/Ingot)
configure_package_config_file(cmake/IngotConfig.cmake.in IngotConfig.cmake INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(IngotConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/IngotConfig.cmake ${PROJECT_BINARY_DIR}/IngotConfigVersion.cmake
  DESTINATION ${package_folder} COMPONENT sdk)
install(EXPORT IngotTargets NAMESPACE Ingot:: DESTINATION ${package_folder} COMPONENT sdk)
if(NOT SKBUILD)
  install(TARGETS ingot RUNTIME COMPONENT command)
endif()
