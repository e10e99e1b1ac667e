#include "collective/mpi_library.h"

#include <dlfcn.h>

#include <type_traits>

#include "core/error.h"

namespace ingot {
namespace {

constexpr const char* kNames[] = {"libmpi.so.40", "libmpi.so", "libmpi.40.dylib", "libmpi.dylib"};

void* open_library() {
  for (const char* name : kNames)
    // Its own plugins look for its symbols among those of the program.
    if (void* library = dlopen(name, RTLD_NOW | RTLD_GLOBAL)) return library;
  throw_error(ErrorKind::declined, "there is no Open MPI here (libmpi.so.40): install openmpi-bin");
}

void* find(void* library, const char* symbol) {
  if (void* found = dlsym(library, symbol)) return found;
  throw_error(ErrorKind::declined, "the MPI library here has no {}: Open MPI is needed (openmpi-bin)", symbol);
}

MpiLibrary load() {
  void* library = open_library();
  MpiLibrary mpi;
  const auto take = [library](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(find(library, name));
  };
  take(mpi.Init_thread, "MPI_Init_thread");
  take(mpi.Finalize, "MPI_Finalize");
  take(mpi.Abort, "MPI_Abort");
  take(mpi.Comm_rank, "MPI_Comm_rank");
  take(mpi.Comm_size, "MPI_Comm_size");
  take(mpi.Comm_dup, "MPI_Comm_dup");
  take(mpi.Comm_split_type, "MPI_Comm_split_type");
  take(mpi.Comm_set_errhandler, "MPI_Comm_set_errhandler");
  take(mpi.Get_processor_name, "MPI_Get_processor_name");
  take(mpi.Send, "MPI_Send");
  take(mpi.Recv, "MPI_Recv");
  take(mpi.Sendrecv, "MPI_Sendrecv");
  take(mpi.Isend, "MPI_Isend");
  take(mpi.Irecv, "MPI_Irecv");
  take(mpi.Waitall, "MPI_Waitall");
  take(mpi.Test, "MPI_Test");
  take(mpi.Improbe, "MPI_Improbe");
  take(mpi.Mrecv, "MPI_Mrecv");
  take(mpi.Get_count, "MPI_Get_count");
  take(mpi.Barrier, "MPI_Barrier");
  take(mpi.Allgather, "MPI_Allgather");
  take(mpi.Allgatherv, "MPI_Allgatherv");
  take(mpi.Publish_name, "MPI_Publish_name");
  take(mpi.Lookup_name, "MPI_Lookup_name");
  mpi.world = static_cast<MPI_Comm>(find(library, "ompi_mpi_comm_world"));
  mpi.byte = static_cast<MPI_Datatype>(find(library, "ompi_mpi_byte"));
  mpi.no_info = static_cast<MPI_Info>(find(library, "ompi_mpi_info_null"));
  mpi.errors_return = static_cast<MPI_Errhandler>(find(library, "ompi_mpi_errors_return"));
  return mpi;
}

}  // namespace

const MpiLibrary& mpi_library() {
  static const MpiLibrary library = load();
  return library;
}

}  // namespace ingot
