# The targets swath::swath (shared) and swath::static.
get_filename_component(_swath_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

if(NOT TARGET swath::swath)
  add_library(swath::swath SHARED IMPORTED)
  set_target_properties(swath::swath PROPERTIES
    IMPORTED_LOCATION "${_swath_prefix}/lib/libswath.so.0"
    IMPORTED_SONAME "libswath.so.0"
    INTERFACE_INCLUDE_DIRECTORIES "${_swath_prefix}/include")
  find_package(Threads REQUIRED)
  add_library(swath::static STATIC IMPORTED)
  set_target_properties(swath::static PROPERTIES
    IMPORTED_LOCATION "${_swath_prefix}/lib/libswath.a"
    INTERFACE_INCLUDE_DIRECTORIES "${_swath_prefix}/include"
    INTERFACE_LINK_LIBRARIES "Threads::Threads;${CMAKE_DL_LIBS};m")
endif()

unset(_swath_prefix)
