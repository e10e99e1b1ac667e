#pragma once

#include <mpi.h>

namespace ingot {

// The functions of MPI that we call, from the library that is found when the program runs. Open MPI's constants are
// addresses in it, so they come from there too.
struct MpiLibrary {
  decltype(&MPI_Init_thread) Init_thread = nullptr;
  decltype(&MPI_Finalize) Finalize = nullptr;
  decltype(&MPI_Abort) Abort = nullptr;
  decltype(&MPI_Comm_rank) Comm_rank = nullptr;
  decltype(&MPI_Comm_size) Comm_size = nullptr;
  decltype(&MPI_Comm_dup) Comm_dup = nullptr;
  decltype(&MPI_Comm_split_type) Comm_split_type = nullptr;
  decltype(&MPI_Comm_set_errhandler) Comm_set_errhandler = nullptr;
  decltype(&MPI_Get_processor_name) Get_processor_name = nullptr;
  decltype(&MPI_Send) Send = nullptr;
  decltype(&MPI_Recv) Recv = nullptr;
  decltype(&MPI_Sendrecv) Sendrecv = nullptr;
  decltype(&MPI_Isend) Isend = nullptr;
  decltype(&MPI_Irecv) Irecv = nullptr;
  decltype(&MPI_Waitall) Waitall = nullptr;
  decltype(&MPI_Test) Test = nullptr;
  decltype(&MPI_Improbe) Improbe = nullptr;
  decltype(&MPI_Mrecv) Mrecv = nullptr;
  decltype(&MPI_Get_count) Get_count = nullptr;
  decltype(&MPI_Barrier) Barrier = nullptr;
  decltype(&MPI_Allgather) Allgather = nullptr;
  decltype(&MPI_Allgatherv) Allgatherv = nullptr;
  decltype(&MPI_Publish_name) Publish_name = nullptr;
  decltype(&MPI_Lookup_name) Lookup_name = nullptr;
  MPI_Comm world{};
  MPI_Datatype byte{};
  MPI_Info no_info{};
  MPI_Errhandler errors_return{};
};

// Loads it once. Throws Error(declined) where there is none.
const MpiLibrary& mpi_library();

}  // namespace ingot
