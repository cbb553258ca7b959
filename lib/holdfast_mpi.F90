! holdfast_mpi.F90 - hf_init and requests for a program with MPI, with which it is compiled.
!
! If the MPI has no module mpi_f08, compile with -DHOLDFAST_NO_MPI_F08.
module holdfast_mpi
  use, intrinsic :: iso_c_binding
  use mpi, only: MPI_BYTE, MPI_COMM_WORLD, MPI_SUCCESS
#ifndef HOLDFAST_NO_MPI_F08
  use mpi_f08, only: MPI_Comm, MPI_Request
#endif
  use holdfast, only: hf_config, hf_init_by, hf_protect_request_by, HF_E_ARG
  implicit none
  private
  public :: hf_init_mpi, hf_protect_request

  external :: MPI_Allgather, MPI_Comm_dup, MPI_Comm_free, MPI_Comm_rank, MPI_Comm_size

  ! Connects the ranks of comm, which must be all ranks of the job. Collective. comm is an integer, or a type(MPI_Comm)
  ! of mpi_f08. It duplicates comm, and frees the duplicate before it returns.
  !
  !     call hf_init_mpi(comm, ierr, errmsg)
  interface hf_init_mpi
    module procedure init_integer
#ifndef HOLDFAST_NO_MPI_F08
    module procedure init_f08
#endif
  end interface

  ! Makes the request in a variable part of every checkpoint, for a program with libholdfast-mpi. Local. hf_restore
  ! posts a pending receive again, and makes persistent requests again; holdfast_mpi.h has the conditions. The variable
  ! is an integer, or a type(MPI_Request) of mpi_f08, and a target.
  !
  !     call hf_protect_request(name, request, ierr, errmsg)
  interface hf_protect_request
    module procedure request_integer
#ifndef HOLDFAST_NO_MPI_F08
    module procedure request_f08
#endif
  end interface

contains

  subroutine request_integer(name, request, ierr, errmsg)
    character(*), intent(in) :: name
    integer, target, intent(inout) :: request
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg

    call hf_protect_request_by(name, c_loc(request), ierr, errmsg)
  end subroutine

#ifndef HOLDFAST_NO_MPI_F08
  subroutine request_f08(name, request, ierr, errmsg)
    character(*), intent(in) :: name
    type(MPI_Request), target, intent(inout) :: request
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg

    call request_integer(name, request%MPI_VAL, ierr, errmsg)
  end subroutine
#endif

  subroutine init_integer(comm, ierr, errmsg)
    integer, intent(in) :: comm
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg
    integer, target :: mine
    integer :: rank, size, world, code
    type(hf_config) :: c

    call MPI_Comm_dup(comm, mine, code)
    if (code == MPI_SUCCESS) call MPI_Comm_rank(mine, rank, code)
    if (code == MPI_SUCCESS) call MPI_Comm_size(mine, size, code)
    if (code == MPI_SUCCESS) call MPI_Comm_size(MPI_COMM_WORLD, world, code)
    if (code /= MPI_SUCCESS) then
      if (present(errmsg)) errmsg = "hf_init_mpi: MPI cannot copy the communicator; call it after MPI_Init"
      if (.not. present(ierr)) error stop "holdfast: hf_init_mpi: MPI cannot copy the communicator"
      ierr = HF_E_ARG
      return
    end if
    c%rank = int(rank, c_int)
    c%size = int(size, c_int)
    c%world = int(world, c_int)
    c%allgather = c_funloc(gather)
    c%arg = c_loc(mine)
    call hf_init_by(c, ierr, errmsg)
    call MPI_Comm_free(mine, code)
  end subroutine

#ifndef HOLDFAST_NO_MPI_F08
  subroutine init_f08(comm, ierr, errmsg)
    type(MPI_Comm), intent(in) :: comm
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg

    call init_integer(comm%MPI_VAL, ierr, errmsg)
  end subroutine
#endif

  ! hf_allgather of module holdfast; arg is the address of the communicator.
  integer(c_int) function gather(all, mine, bytes, arg) bind(C)
    type(c_ptr), value :: all, mine, arg
    integer(c_size_t), value :: bytes
    integer(c_int8_t), pointer :: into(:), from(:)
    integer, pointer :: comm
    integer :: n, ranks, code

    gather = 1
    if (bytes > huge(n)) return
    n = int(bytes)
    call c_f_pointer(arg, comm)
    call MPI_Comm_size(comm, ranks, code)
    if (code /= MPI_SUCCESS) return
    call c_f_pointer(mine, from, [bytes])
    call c_f_pointer(all, into, [bytes * ranks])
    call MPI_Allgather(from, n, MPI_BYTE, into, n, MPI_BYTE, comm, code)
    if (code == MPI_SUCCESS) gather = 0
  end function
end module
