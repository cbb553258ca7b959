! holdfast.F90 - checkpoints of a program in Fortran: the calls of holdfast.h as a module.
!
! A program names the variables that it needs to continue, restores them, and calls hf_point in each step. At a point
! the variables are whole, and none of the program's own messages is in flight. (With libholdfast-mpi they may be:
! docs/MESSAGES.md.)
!
!     use holdfast
!     use holdfast_mpi                        ! hf_init_mpi: holdfast_mpi.F90
!     integer, target :: step                 ! protected variables are targets
!     real(real64), allocatable, target :: u(:,:)
!     logical :: stop_now
!
!     call MPI_Init()
!     call hf_init_mpi(MPI_COMM_WORLD)
!     call hf_protect("step", step)
!     call hf_protect("u", u)
!     call hf_restore()                       ! a first start changes nothing
!     do while (step < steps)
!       call hf_point(stop_now)
!       if (stop_now) exit                    ! the final checkpoint is durable
!       ...
!       step = step + 1
!     end do
!     call hf_finalize()
!     call MPI_Finalize()
!
! Compile this file with the program, by the same compiler, and link with -lholdfast. It needs assumed rank of Fortran
! 2018: gfortran 10 or later. All ranks make a collective call, and it may wait for them; a local call concerns its own
! rank. holdfast.h has the rest: signals, threads, and details of each call.
!
! Errors. The last arguments of each call are optional: ierr is set to 0 or to one of HF_E_ below. After an error
! errmsg, a character variable of any length, has the text: the failed operation, its object, the cause and the remedy.
! Without ierr an error ends the program by error stop with that text, as allocate does without stat. The other ranks
! end too. The exception is HF_E_DAEMON of hf_point, and of hf_checkpoint without a name: another daemon takes the place
! of one that has died.
!
! Targets. The library writes protected variables in hf_restore, hf_restart and hf_recover. It reads them in hf_point,
! hf_checkpoint and hf_finalize. So they must be targets, or the compiler could keep them in registers: for others it
! finds no specific subroutine. Keep them allocated until hf_unprotect or hf_finalize. Protect an array again, by the
! same name, when it has been allocated again.

! Whether the elements lie one behind the other. gfortran's is_contiguous says so of a component of structures, except
! of an argument that came as one of C. It would pass a copy of one, too, but for dummy arguments that are pointers.
#if __GNUC__ >= 12
#define WHOLE(a) c_whole(a) /= 0
#else
#define WHOLE(a) is_contiguous(a)
#endif

module holdfast
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: int8, int16, int32, int64, real32, real64, error_unit
  implicit none
  private

  public :: hf_start, hf_init, hf_protect, hf_restore, hf_point, hf_checkpoint, hf_request, hf_wait, hf_stop_asked, &
            hf_finalize, hf_error, hf_config, hf_allgather, hf_init_by, hf_protect_file, hf_unprotect, hf_test, &
            hf_protect_cuda, hf_keep, hf_restart_test, hf_restart, hf_restart_begin, hf_saved, hf_recover, &
            hf_restart_end, hf_elastic, hf_protect_replicated, hf_protect_global, hf_box, hf_protect_allocatable, &
            hf_protect_request_by

  ! Errors: holdfast.h says more.
  integer, parameter, public :: &
    HF_OK = 0, &
    HF_E_ARG = -1, &      ! an argument is wrong
    HF_E_ORDER = -2, &    ! the call is out of order
    HF_E_MEMORY = -3, &   ! no memory, or no address space
    HF_E_DAEMON = -4, &   ! the node daemon cannot be started, or has died; after hf_point, go on
    HF_E_PROTOCOL = -5, & ! daemon and library are of different releases
    HF_E_LOST = -6, &     ! another rank has ended: exit, the job is over
    HF_E_FAILED = -7      ! the operation failed; errmsg has the reason

  ! Types of elements, for hf_protect of an address.
  integer, parameter, public :: HF_BYTE = 1, HF_INT8 = 2, HF_INT16 = 3, HF_INT32 = 4, HF_INT64 = 5, HF_UINT8 = 6, &
    HF_UINT16 = 7, HF_UINT32 = 8, HF_UINT64 = 9, HF_FLOAT = 10, HF_DOUBLE = 11, HF_FLOAT_COMPLEX = 12, &
    HF_DOUBLE_COMPLEX = 13

  integer, parameter :: restored_code = 1, stop_code = 1, found_code = 1

  character(:), allocatable, save :: refused ! error of the last call, if this module refused it

  ! hf_config of holdfast.h, for modules such as holdfast_mpi.
  type, bind(C) :: hf_config
    integer(c_size_t) :: size_of = 0
    integer(c_int) :: rank = -1, size = -1
    type(c_ptr) :: program = c_null_ptr
    type(c_funptr) :: allgather = c_null_funptr
    type(c_ptr) :: arg = c_null_ptr
    integer(c_int) :: world = 0
  end type

  integer, parameter, public :: HF_MAX_DIMS = 8

  ! A box of a global array, as in holdfast.h: in elements, with the dimensions in the order of C, of which the last
  ! varies fastest, and indices from 0.
  type, bind(C) :: hf_box
    integer(c_int64_t), dimension(HF_MAX_DIMS) :: start = 0, count = 0, low = 0, high = 0, pitch = 0, block = 0, &
                                                  stride = 0
    integer(c_int64_t) :: offset = 0
  end type

  abstract interface
    ! hf_allgather_fn of holdfast.h.
    integer(c_int) function hf_allgather(all, mine, bytes, arg) bind(C)
      import :: c_int, c_ptr, c_size_t
      type(c_ptr), value :: all, mine, arg
      integer(c_size_t), value :: bytes
    end function
  end interface

  ! Makes a variable part of every checkpoint under name, of 1 to 200 bytes: a scalar or an array of any rank. Its type
  ! is integer or logical of 1, 2, 4 or 8 bytes, real or complex of 4 or 8 bytes each, or default character. A section
  ! of an array must be contiguous. Local. Copies nothing: costs one exchange with the node daemon.
  !
  !     call hf_protect(name, variable, ierr, errmsg)
  !     call hf_protect(name, address, count, type, ierr, errmsg)
  !
  ! The second form is for all else, device memory too: count elements of an HF_ type at a type(c_ptr). For a derived
  ! type without pointers and allocatable components use c_loc(x), storage_size(x) / 8, HF_BYTE.
  interface hf_protect
    module procedure protect_int8, protect_int16, protect_int32, protect_int64, protect_real32, protect_real64, &
      protect_complex32, protect_complex64, protect_logical8, protect_logical16, protect_logical32, protect_logical64, &
      protect_character, protect_address
  end interface

  ! Makes an allocatable array whose length changes part of every checkpoint. Local. Before hf_restore it allocates the
  ! array with its length in the checkpoint. If it has two dimensions, the last one may change. Call it again when the
  ! array has been allocated again. The first call before hf_restore waits until every rank has called it, hf_saved or
  ! hf_restore.
  !
  !     call hf_protect_allocatable(name, variable, ierr, errmsg)
  interface hf_protect_allocatable
    module procedure allocatable_int32, allocatable_int64, allocatable_real32, allocatable_real64, &
      allocatable_complex64, allocatable_logical32, allocatable_character, allocatable2_int32, &
      allocatable2_real32, allocatable2_real64
  end interface

  ! Makes a variable that is the same on all ranks, such as the number of a step, part of every checkpoint. Local, on
  ! all ranks. Any number of ranks can restore it. Each checkpoint compares the ranks' bytes, and fails if they differ.
  !
  !     call hf_protect_replicated(name, variable, ierr, errmsg)
  !     call hf_protect_replicated(name, address, count, type, ierr, errmsg)
  interface hf_protect_replicated
    module procedure replicated_int32, replicated_int64, replicated_real32, replicated_real64, replicated_logical8, &
      replicated_logical32, replicated_logical64, replicated_character, replicated_address
  end interface

  ! Makes this rank's share of a global array part of every checkpoint, so that any number of ranks can restore it.
  ! Local, but every rank declares the array, with the same name, type and lengths. Every element must belong to
  ! exactly one rank; otherwise the checkpoint fails and names the ranks.
  !
  !     call hf_protect_global(name, variable, lengths, first, low, high, block, stride, ierr, errmsg)
  !     call hf_protect_global(name, address, count, type, lengths, boxes, ierr, errmsg)
  !
  ! All numbers are elements, by dimension. lengths are those of the whole array. first has the indices, from 1, of the
  ! variable's first element behind low ghost elements; high ghost elements follow the last. Ghosts are not saved:
  ! exchange them after hf_restore. low, high, block and stride are optional. Along a dimension with a block other than
  ! 0 the indices are runs of block, stride apart: blocks that are dealt out in turn. If a variable has only ghosts, the
  ! rank has no share, and first has no meaning.
  !
  ! The second form is for all else: several boxes in the count elements at an address, as in holdfast.h. There lengths
  ! and boxes have the order of C, as an array has that is exported for NumPy. See hf_elastic.
  interface hf_protect_global
    module procedure global_int32, global_int64, global_real32, global_real64, global_complex32, global_complex64, &
      global_address
  end interface

  ! Takes a checkpoint here and now. Collective. Returns when the state is copied; hf_wait waits until it is durable.
  !
  !     call hf_checkpoint(stop_now, ierr, errmsg)
  !     call hf_checkpoint(name, version, ierr, errmsg)
  !
  ! The first form takes the same checkpoint as hf_point, with the same stop_now, and counts as a point. The second form
  ! gives it a name and a version, which the program chooses, for hf_restart. The ranks must give the same ones.
  ! Versions are integers of 4 or 8 bytes, from 0, in all calls.
  interface hf_checkpoint
    module procedure checkpoint_here, checkpoint_named32, checkpoint_named64
  end interface

  ! Finds the highest version of a name that all ranks can read and that is not above at_most, an optional integer of
  ! the kind of version. Collective. version is -1 if there is none. Reads that version completely, to verify it.
  !
  !     call hf_restart_test(name, version, at_most, ierr, errmsg)
  interface hf_restart_test
    module procedure restart_test32, restart_test64
  end interface

  ! Restores a version of a name: reads it into all protected variables, on all ranks or none. Collective.
  !
  !     call hf_restart(name, version, ierr, errmsg)
  interface hf_restart
    module procedure restart32, restart64
  end interface

  ! Reads a version of a name into memory of the node daemon and verifies it, for hf_saved and hf_recover. Collective.
  ! The program's variables do not change. No checkpoint may be taken until hf_restart_end.
  !
  !     call hf_restart_begin(name, version, ierr, errmsg)
  interface hf_restart_begin
    module procedure restart_begin32, restart_begin64
  end interface

  interface
    integer(c_int) function c_start() bind(C, name="hf_start")
      import :: c_int
    end function
    integer(c_int) function c_init(config) bind(C, name="hf_init")
      import :: c_int, hf_config
      type(hf_config), intent(in) :: config
    end function
    integer(c_int) function c_protect(name, ptr, count, kind) bind(C, name="hf_protect")
      import :: c_int, c_char, c_ptr, c_size_t
      character(kind=c_char), intent(in) :: name(*)
      type(c_ptr), value :: ptr
      integer(c_size_t), value :: count
      integer(c_int), value :: kind
    end function
    integer(c_int) function c_elastic() bind(C, name="hf_elastic")
      import :: c_int
    end function
    integer(c_int) function c_protect_replicated(name, ptr, count, kind) bind(C, name="hf_protect_replicated")
      import :: c_int, c_char, c_ptr, c_size_t
      character(kind=c_char), intent(in) :: name(*)
      type(c_ptr), value :: ptr
      integer(c_size_t), value :: count
      integer(c_int), value :: kind
    end function
    integer(c_int) function c_protect_global(name, ptr, count, kind, dims, lengths, boxes, n) &
      bind(C, name="hf_protect_global")
      import :: c_int, c_char, c_ptr, c_size_t, c_int64_t, hf_box
      character(kind=c_char), intent(in) :: name(*)
      type(c_ptr), value :: ptr
      integer(c_size_t), value :: count, n
      integer(c_int), value :: kind, dims
      integer(c_int64_t), intent(in) :: lengths(*)
      type(hf_box), intent(in) :: boxes(*)
    end function
    integer(c_int) function c_restore() bind(C, name="hf_restore")
      import :: c_int
    end function
    integer(c_int) function c_point() bind(C, name="hf_point")
      import :: c_int
    end function
    integer(c_int) function c_checkpoint(name, version) bind(C, name="hf_checkpoint")
      import :: c_int, c_ptr, c_int64_t
      type(c_ptr), value :: name
      integer(c_int64_t), value :: version
    end function
    integer(c_int) function c_protect_cuda() bind(C, name="hf_protect_cuda")
      import :: c_int
    end function
    integer(c_int) function c_protect_file(name, path) bind(C, name="hf_protect_file")
      import :: c_int, c_char
      character(kind=c_char), intent(in) :: name(*), path(*)
    end function
    integer(c_int) function c_protect_handle(name, request, fortran) bind(C, name="hf_protect_handle")
      import :: c_int, c_char, c_ptr
      character(kind=c_char), intent(in) :: name(*)
      type(c_ptr), value :: request
      integer(c_int), value :: fortran
    end function
    integer(c_int) function c_unprotect(name) bind(C, name="hf_unprotect")
      import :: c_int, c_char
      character(kind=c_char), intent(in) :: name(*)
    end function
    integer(c_int) function c_keep(name, versions) bind(C, name="hf_keep")
      import :: c_int, c_char
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int), value :: versions
    end function
    integer(c_int) function c_restart_test(name, at_most, version) bind(C, name="hf_restart_test")
      import :: c_int, c_char, c_int64_t
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int64_t), value :: at_most
      integer(c_int64_t), intent(inout) :: version
    end function
    integer(c_int) function c_restart(name, version) bind(C, name="hf_restart")
      import :: c_int, c_char, c_int64_t
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int64_t), value :: version
    end function
    integer(c_int) function c_restart_begin(name, version) bind(C, name="hf_restart_begin")
      import :: c_int, c_char, c_int64_t
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int64_t), value :: version
    end function
    integer(c_int) function c_saved(array, count, kind) bind(C, name="hf_saved")
      import :: c_int, c_char, c_ptr, c_size_t
      character(kind=c_char), intent(in) :: array(*)
      integer(c_size_t), intent(inout) :: count
      type(c_ptr), value :: kind
    end function
    integer(c_int) function c_recover(arrays, n) bind(C, name="hf_recover")
      import :: c_int, c_ptr, c_size_t
      type(c_ptr), value :: arrays
      integer(c_size_t), value :: n
    end function
    integer(c_int) function c_restart_end() bind(C, name="hf_restart_end")
      import :: c_int
    end function
    integer(c_int) function c_request(stop) bind(C, name="hf_request")
      import :: c_int
      integer(c_int), value :: stop
    end function
    integer(c_int) function c_wait(level) bind(C, name="hf_wait")
      import :: c_int, c_ptr
      type(c_ptr), value :: level
    end function
    integer(c_int) function c_test(level) bind(C, name="hf_test")
      import :: c_int, c_ptr
      type(c_ptr), value :: level
    end function
    integer(c_int) function c_stop_asked() bind(C, name="hf_stop_asked")
      import :: c_int
    end function
    integer(c_int) function c_finalize() bind(C, name="hf_finalize")
      import :: c_int
    end function
    type(c_ptr) function c_error() bind(C, name="hf_error")
      import :: c_ptr
    end function
    integer(c_size_t) function c_strlen(s) bind(C, name="strlen")
      import :: c_ptr, c_size_t
      type(c_ptr), value :: s
    end function
  end interface

contains

  ! Finds or starts the node daemon. Local. Optional: hf_init does it otherwise. Call it before MPI_Init if the MPI does
  ! not allow processes to be started later.
  subroutine hf_start(ierr, errmsg)
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg
    integer :: code

    code = c_start()
    call report(code, ierr, errmsg)
  end subroutine

  ! Allows the job to continue from a checkpoint of another number of ranks. Local, before hf_init or hf_init_mpi, on
  ! all ranks. Protect all state by hf_protect_global or hf_protect_replicated.
  subroutine hf_elastic(ierr, errmsg)
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg
    integer :: code

    code = c_elastic()
    call report(code, ierr, errmsg)
  end subroutine

  ! Connects this rank of a program without MPI, whose ranks are all on this node. Collective: returns when all ranks
  ! have called it. Without rank and size the launcher's environment has them, else it is one process. program is the
  ! name of the job, by default that of the executable. Programs with MPI call hf_init_mpi of holdfast_mpi.
  subroutine hf_init(rank, size, program, ierr, errmsg)
    integer, optional, intent(in) :: rank, size
    character(*), optional, intent(in) :: program
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg
    character(kind=c_char, len=:), allocatable, target :: name
    type(hf_config) :: c

    if (present(rank)) c%rank = int(rank, c_int)
    if (present(size)) c%size = int(size, c_int)
    if (present(program)) then
      name = trim(program)//c_null_char
      c%program = c_loc(name)
    end if
    call hf_init_by(c, ierr, errmsg)
  end subroutine

  ! hf_init of holdfast.h, for modules such as holdfast_mpi. Collective. It sets size_of itself.
  subroutine hf_init_by(c, ierr, errmsg)
    type(hf_config), intent(inout) :: c
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg
    integer :: code

    c%size_of = c_sizeof(c)
    code = c_init(c)
    call report(code, ierr, errmsg)
  end subroutine

  ! Reads the newest checkpoint that all ranks can read into everything protected; restored is false on a first start.
  ! Collective, once, after hf_protect and before the first point. After an error no variable has changed.
  subroutine hf_restore(restored, ierr, errmsg)
    logical, optional, intent(out) :: restored
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg
    integer :: code

    code = c_restore()
    if (present(restored)) restored = code == restored_code
    call report(code, ierr, errmsg)
  end subroutine

  ! Takes a checkpoint if one is asked for. Collective: all ranks reach the same number of points, and none of their
  ! messages is in flight. With libholdfast-mpi neither is required: messages in flight become part of the checkpoint,
  ! or it fails on all ranks and names the call. stop_now is true when the final checkpoint is durable: finish. Costs a
  ! store and a load if no checkpoint is asked for. Otherwise it waits until all ranks are here and the state is copied.
  subroutine hf_point(stop_now, ierr, errmsg)
    logical, intent(out) :: stop_now
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg
    integer :: code

    code = c_point()
    stop_now = code == stop_code
    if (code == HF_E_DAEMON .and. .not. present(ierr)) code = 0 ! the run goes on
    call report(code, ierr, errmsg)
  end subroutine

  subroutine checkpoint_here(stop_now, ierr, errmsg)
    logical, intent(out) :: stop_now
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg
    integer :: code

    code = c_checkpoint(c_null_ptr, 0_c_int64_t)
    stop_now = code == stop_code
    if (code == HF_E_DAEMON .and. .not. present(ierr)) code = 0 ! the run goes on
    call report(code, ierr, errmsg)
  end subroutine

  subroutine checkpoint_named32(name, version, ierr, errmsg)
    character(*), intent(in) :: name
    integer(int32), intent(in) :: version
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg

    call checkpoint_named64(name, int(version, int64), ierr, errmsg)
  end subroutine

  subroutine checkpoint_named64(name, version, ierr, errmsg)
    character(*), intent(in) :: name
    integer(int64), intent(in) :: version
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg
    integer :: code
    character(kind=c_char, len=:), allocatable, target :: text

    text = trim(name)//c_null_char
    code = c_checkpoint(c_loc(text), version)
    call report(code, ierr, errmsg)
  end subroutine

  ! Sets the number of checkpoints of a name to keep, at least 2; 0 uses the setting keep. Local, before the name is
  ! first used, with the same number on all ranks.
  subroutine hf_keep(name, versions, ierr, errmsg)
    character(*), intent(in) :: name
    integer, intent(in) :: versions
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg
    integer :: code

    code = c_keep(trim(name)//c_null_char, int(versions, c_int))
    call report(code, ierr, errmsg)
  end subroutine

  subroutine restart_test32(name, version, at_most, ierr, errmsg)
    character(*), intent(in) :: name
    integer(int32), intent(out) :: version
    integer(int32), optional, intent(in) :: at_most
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg
    integer(int64) :: most, found
    integer :: code

    most = -1
    if (present(at_most)) most = at_most
    call find(name, most, found, code)
    version = -1
    if (found > huge(version)) then
      call refuse(HF_E_FAILED, "hf_restart_test """//name//""": its version does not fit an integer of 4 bytes; give &
                  &one of 8", ierr, errmsg)
      return
    end if
    version = int(found, int32)
    call report(code, ierr, errmsg)
  end subroutine

  subroutine restart_test64(name, version, at_most, ierr, errmsg)
    character(*), intent(in) :: name
    integer(int64), intent(out) :: version
    integer(int64), optional, intent(in) :: at_most
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg
    integer(int64) :: most
    integer :: code

    most = -1
    if (present(at_most)) most = at_most
    call find(name, most, version, code)
    call report(code, ierr, errmsg)
  end subroutine

  ! hf_restart_test of holdfast.h; version is -1 if it finds none.
  subroutine find(name, at_most, version, code)
    character(*), intent(in) :: name
    integer(int64), intent(in) :: at_most
    integer(int64), intent(out) :: version
    integer, intent(out) :: code

    version = -1
    code = c_restart_test(trim(name)//c_null_char, at_most, version)
    if (code /= found_code) version = -1
  end subroutine

  subroutine restart32(name, version, ierr, errmsg)
    character(*), intent(in) :: name
    integer(int32), intent(in) :: version
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg

    call restart64(name, int(version, int64), ierr, errmsg)
  end subroutine

  subroutine restart64(name, version, ierr, errmsg)
    character(*), intent(in) :: name
    integer(int64), intent(in) :: version
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg
    integer :: code

    code = c_restart(trim(name)//c_null_char, version)
    call report(code, ierr, errmsg)
  end subroutine

  subroutine restart_begin32(name, version, ierr, errmsg)
    character(*), intent(in) :: name
    integer(int32), intent(in) :: version
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg

    call restart_begin64(name, int(version, int64), ierr, errmsg)
  end subroutine

  subroutine restart_begin64(name, version, ierr, errmsg)
    character(*), intent(in) :: name
    integer(int64), intent(in) :: version
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg
    integer :: code

    code = c_restart_begin(trim(name)//c_null_char, version)
    call report(code, ierr, errmsg)
  end subroutine

  ! Returns the number of elements of an array in the checkpoint of hf_restart_begin, or -1 if it is not there. Local.
  ! Before hf_restore it describes the checkpoint that hf_restore will restore. The first such call waits until every
  ! rank has called it or hf_restore.
  subroutine hf_saved(array, count, ierr, errmsg)
    character(*), intent(in) :: array
    integer(int64), intent(out) :: count
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg
    integer :: code
    integer(c_size_t) :: n

    n = 0
    code = c_saved(trim(array)//c_null_char, n, c_null_ptr)
    count = merge(int(n, int64), -1_int64, code == found_code)
    call report(code, ierr, errmsg)
  end subroutine

  ! Copies one array from the checkpoint of hf_restart_begin; without a name all arrays, which must be protected. Local.
  ! If a variable is too small or has another type, nothing is copied.
  subroutine hf_recover(array, ierr, errmsg)
    character(*), optional, intent(in) :: array
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg
    integer :: code
    character(kind=c_char, len=:), allocatable, target :: text
    type(c_ptr), target :: at(1)

    if (present(array)) then
      text = trim(array)//c_null_char
      at(1) = c_loc(text)
      code = c_recover(c_loc(at), 1_c_size_t)
    else
      code = c_recover(c_null_ptr, 0_c_size_t)
    end if
    call report(code, ierr, errmsg)
  end subroutine

  ! Ends the restart of hf_restart_begin. Local.
  subroutine hf_restart_end(ierr, errmsg)
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg
    integer :: code

    code = c_restart_end()
    call report(code, ierr, errmsg)
  end subroutine

  ! Makes all device memory of a CUDA program part of every checkpoint. Local, between hf_init and hf_restore. The
  ! program must run with libholdfast-cuda in front of the driver, as under `holdfast run --cuda`: holdfast.h,
  ! docs/CUDA.md.
  subroutine hf_protect_cuda(ierr, errmsg)
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg
    integer :: code

    code = c_protect_cuda()
    call report(code, ierr, errmsg)
  end subroutine

  ! Makes the file at path part of every checkpoint under name. Local. A checkpoint reads it while the program waits,
  ! and fails if it is missing. A restore replaces it: open it afterwards, or what you write to it is lost.
  subroutine hf_protect_file(name, path, ierr, errmsg)
    character(*), intent(in) :: name, path
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg
    integer :: code

    code = c_protect_file(trim(name)//c_null_char, trim(path)//c_null_char)
    call report(code, ierr, errmsg)
  end subroutine

  ! For hf_protect_request of holdfast_mpi. Local. request is the address of an MPI request in Fortran.
  subroutine hf_protect_request_by(name, request, ierr, errmsg)
    character(*), intent(in) :: name
    type(c_ptr), intent(in) :: request
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg
    integer :: code

    code = c_protect_handle(trim(name)//c_null_char, request, 1_c_int)
    call report(code, ierr, errmsg)
  end subroutine

  ! Takes a variable, file or request out of later checkpoints. Local.
  subroutine hf_unprotect(name, ierr, errmsg)
    character(*), intent(in) :: name
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg
    integer :: code

    code = c_unprotect(trim(name)//c_null_char)
    call report(code, ierr, errmsg)
  end subroutine

  ! Asks for a checkpoint at the next point; with stop for a final one. Local.
  subroutine hf_request(stop, ierr, errmsg)
    logical, optional, intent(in) :: stop
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg
    integer(c_int) :: final
    integer :: code

    final = 0
    if (present(stop)) final = merge(1_c_int, 0_c_int, stop)
    code = c_request(final)
    call report(code, ierr, errmsg)
  end subroutine

  ! Waits until the newest checkpoint, and the newest of each name, is durable at a level: "local", "partner", "parity"
  ! or "global"; without level at all levels in use. Local. Fails if that checkpoint failed there.
  subroutine hf_wait(level, ierr, errmsg)
    character(*), optional, intent(in) :: level
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg
    integer :: code
    character(kind=c_char, len=:), allocatable, target :: text

    if (present(level)) then
      text = trim(level)//c_null_char
      code = c_wait(c_loc(text))
    else
      code = c_wait(c_null_ptr)
    end if
    call report(code, ierr, errmsg)
  end subroutine

  ! Sets durable to true if hf_wait would return at once. Local.
  subroutine hf_test(durable, level, ierr, errmsg)
    logical, intent(out) :: durable
    character(*), optional, intent(in) :: level
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg
    integer :: code
    character(kind=c_char, len=:), allocatable, target :: text

    if (present(level)) then
      text = trim(level)//c_null_char
      code = c_test(c_loc(text))
    else
      code = c_test(c_null_ptr)
    end if
    durable = code == found_code
    call report(code, ierr, errmsg)
  end subroutine

  ! Returns true after hf_point or hf_checkpoint has set stop_now. Local, from any thread.
  logical function hf_stop_asked()
    hf_stop_asked = c_stop_asked() /= 0
  end function

  ! Waits until all ranks are here and the last checkpoint is at all levels, and frees everything. Collective. A process
  ! that ends without it ends the job, as a crash does.
  subroutine hf_finalize(ierr, errmsg)
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg
    integer :: code

    code = c_finalize()
    call report(code, ierr, errmsg)
  end subroutine

  ! Returns the text of the last error: the failed operation, its object, the cause and the remedy. Local.
  function hf_error() result(text)
    character(:), allocatable :: text
    character(kind=c_char), pointer :: s(:)
    type(c_ptr) :: at
    integer :: i

    if (allocated(refused)) then
      text = refused
      return
    end if
    at = c_error()
    call c_f_pointer(at, s, [c_strlen(at)])
    allocate (character(size(s)) :: text)
    do i = 1, size(s)
      text(i:i) = s(i)
    end do
  end function

  subroutine protect_int8(name, a, ierr, errmsg)
    character(*), intent(in) :: name
    integer(int8), pointer, intent(in) :: a(..)
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg

    call place(name, c_loc(a), size(a, kind=c_size_t), HF_INT8, WHOLE(a), ierr, errmsg)
  end subroutine

  subroutine protect_int16(name, a, ierr, errmsg)
    character(*), intent(in) :: name
    integer(int16), pointer, intent(in) :: a(..)
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg

    call place(name, c_loc(a), size(a, kind=c_size_t), HF_INT16, WHOLE(a), ierr, errmsg)
  end subroutine

  subroutine protect_int32(name, a, ierr, errmsg)
    character(*), intent(in) :: name
    integer(int32), pointer, intent(in) :: a(..)
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg

    call place(name, c_loc(a), size(a, kind=c_size_t), HF_INT32, WHOLE(a), ierr, errmsg)
  end subroutine

  subroutine protect_int64(name, a, ierr, errmsg)
    character(*), intent(in) :: name
    integer(int64), pointer, intent(in) :: a(..)
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg

    call place(name, c_loc(a), size(a, kind=c_size_t), HF_INT64, WHOLE(a), ierr, errmsg)
  end subroutine

  subroutine protect_real32(name, a, ierr, errmsg)
    character(*), intent(in) :: name
    real(real32), pointer, intent(in) :: a(..)
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg

    call place(name, c_loc(a), size(a, kind=c_size_t), HF_FLOAT, WHOLE(a), ierr, errmsg)
  end subroutine

  subroutine protect_real64(name, a, ierr, errmsg)
    character(*), intent(in) :: name
    real(real64), pointer, intent(in) :: a(..)
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg

    call place(name, c_loc(a), size(a, kind=c_size_t), HF_DOUBLE, WHOLE(a), ierr, errmsg)
  end subroutine

  subroutine protect_complex32(name, a, ierr, errmsg)
    character(*), intent(in) :: name
    complex(real32), pointer, intent(in) :: a(..)
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg

    call place(name, c_loc(a), size(a, kind=c_size_t), HF_FLOAT_COMPLEX, WHOLE(a), ierr, errmsg)
  end subroutine

  subroutine protect_complex64(name, a, ierr, errmsg)
    character(*), intent(in) :: name
    complex(real64), pointer, intent(in) :: a(..)
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg

    call place(name, c_loc(a), size(a, kind=c_size_t), HF_DOUBLE_COMPLEX, WHOLE(a), ierr, errmsg)
  end subroutine

  subroutine protect_logical8(name, a, ierr, errmsg)
    character(*), intent(in) :: name
    logical(int8), pointer, intent(in) :: a(..)
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg

    call place(name, c_loc(a), size(a, kind=c_size_t), HF_INT8, WHOLE(a), ierr, errmsg)
  end subroutine

  subroutine protect_logical16(name, a, ierr, errmsg)
    character(*), intent(in) :: name
    logical(int16), pointer, intent(in) :: a(..)
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg

    call place(name, c_loc(a), size(a, kind=c_size_t), HF_INT16, WHOLE(a), ierr, errmsg)
  end subroutine

  subroutine protect_logical32(name, a, ierr, errmsg)
    character(*), intent(in) :: name
    logical(int32), pointer, intent(in) :: a(..)
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg

    call place(name, c_loc(a), size(a, kind=c_size_t), HF_INT32, WHOLE(a), ierr, errmsg)
  end subroutine

  subroutine protect_logical64(name, a, ierr, errmsg)
    character(*), intent(in) :: name
    logical(int64), pointer, intent(in) :: a(..)
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg

    call place(name, c_loc(a), size(a, kind=c_size_t), HF_INT64, WHOLE(a), ierr, errmsg)
  end subroutine

  subroutine protect_character(name, a, ierr, errmsg)
    character(*), intent(in) :: name
    character(*), pointer, intent(in) :: a(..)
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg

    call place(name, c_loc(a), size(a, kind=c_size_t) * len(a), HF_BYTE, WHOLE(a), ierr, errmsg)
  end subroutine

  subroutine allocatable_int32(name, a, ierr, errmsg)
    character(*), intent(in) :: name
    integer(int32), allocatable, target, intent(inout) :: a(:)
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg
    integer(int64) :: n

    n = 0
    if (allocated(a)) n = size(a, kind=int64)
    if (.not. saved_length(name, 1_int64, n, ierr, errmsg)) return
    if (allocated(a)) then
      if (size(a, kind=int64) /= n) deallocate (a)
    end if
    if (.not. allocated(a)) allocate (a(n))
    call place(name, c_loc(a), size(a, kind=c_size_t), HF_INT32, .true., ierr, errmsg)
  end subroutine

  subroutine allocatable_int64(name, a, ierr, errmsg)
    character(*), intent(in) :: name
    integer(int64), allocatable, target, intent(inout) :: a(:)
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg
    integer(int64) :: n

    n = 0
    if (allocated(a)) n = size(a, kind=int64)
    if (.not. saved_length(name, 1_int64, n, ierr, errmsg)) return
    if (allocated(a)) then
      if (size(a, kind=int64) /= n) deallocate (a)
    end if
    if (.not. allocated(a)) allocate (a(n))
    call place(name, c_loc(a), size(a, kind=c_size_t), HF_INT64, .true., ierr, errmsg)
  end subroutine

  subroutine allocatable_real32(name, a, ierr, errmsg)
    character(*), intent(in) :: name
    real(real32), allocatable, target, intent(inout) :: a(:)
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg
    integer(int64) :: n

    n = 0
    if (allocated(a)) n = size(a, kind=int64)
    if (.not. saved_length(name, 1_int64, n, ierr, errmsg)) return
    if (allocated(a)) then
      if (size(a, kind=int64) /= n) deallocate (a)
    end if
    if (.not. allocated(a)) allocate (a(n))
    call place(name, c_loc(a), size(a, kind=c_size_t), HF_FLOAT, .true., ierr, errmsg)
  end subroutine

  subroutine allocatable_real64(name, a, ierr, errmsg)
    character(*), intent(in) :: name
    real(real64), allocatable, target, intent(inout) :: a(:)
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg
    integer(int64) :: n

    n = 0
    if (allocated(a)) n = size(a, kind=int64)
    if (.not. saved_length(name, 1_int64, n, ierr, errmsg)) return
    if (allocated(a)) then
      if (size(a, kind=int64) /= n) deallocate (a)
    end if
    if (.not. allocated(a)) allocate (a(n))
    call place(name, c_loc(a), size(a, kind=c_size_t), HF_DOUBLE, .true., ierr, errmsg)
  end subroutine

  subroutine allocatable_complex64(name, a, ierr, errmsg)
    character(*), intent(in) :: name
    complex(real64), allocatable, target, intent(inout) :: a(:)
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg
    integer(int64) :: n

    n = 0
    if (allocated(a)) n = size(a, kind=int64)
    if (.not. saved_length(name, 1_int64, n, ierr, errmsg)) return
    if (allocated(a)) then
      if (size(a, kind=int64) /= n) deallocate (a)
    end if
    if (.not. allocated(a)) allocate (a(n))
    call place(name, c_loc(a), size(a, kind=c_size_t), HF_DOUBLE_COMPLEX, .true., ierr, errmsg)
  end subroutine

  subroutine allocatable_logical32(name, a, ierr, errmsg)
    character(*), intent(in) :: name
    logical(int32), allocatable, target, intent(inout) :: a(:)
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg
    integer(int64) :: n

    n = 0
    if (allocated(a)) n = size(a, kind=int64)
    if (.not. saved_length(name, 1_int64, n, ierr, errmsg)) return
    if (allocated(a)) then
      if (size(a, kind=int64) /= n) deallocate (a)
    end if
    if (.not. allocated(a)) allocate (a(n))
    call place(name, c_loc(a), size(a, kind=c_size_t), HF_INT32, .true., ierr, errmsg)
  end subroutine

  subroutine allocatable_character(name, a, ierr, errmsg)
    character(*), intent(in) :: name
    character(1), allocatable, target, intent(inout) :: a(:)
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg
    integer(int64) :: n

    n = 0
    if (allocated(a)) n = size(a, kind=int64)
    if (.not. saved_length(name, 1_int64, n, ierr, errmsg)) return
    if (allocated(a)) then
      if (size(a, kind=int64) /= n) deallocate (a)
    end if
    if (.not. allocated(a)) allocate (a(n))
    call place(name, c_loc(a), size(a, kind=c_size_t), HF_BYTE, .true., ierr, errmsg)
  end subroutine

  subroutine allocatable2_int32(name, a, ierr, errmsg)
    character(*), intent(in) :: name
    integer(int32), allocatable, target, intent(inout) :: a(:, :)
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg
    integer(int64) :: n, rows

    rows = 0
    n = 0
    if (allocated(a)) then
      rows = size(a, 1, kind=int64)
      n = size(a, 2, kind=int64)
    end if
    if (.not. saved_length(name, rows, n, ierr, errmsg)) return
    if (allocated(a)) then
      if (size(a, 2, kind=int64) /= n) deallocate (a)
    end if
    if (.not. allocated(a)) allocate (a(rows, n))
    call place(name, c_loc(a), size(a, kind=c_size_t), HF_INT32, .true., ierr, errmsg)
  end subroutine

  subroutine allocatable2_real32(name, a, ierr, errmsg)
    character(*), intent(in) :: name
    real(real32), allocatable, target, intent(inout) :: a(:, :)
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg
    integer(int64) :: n, rows

    rows = 0
    n = 0
    if (allocated(a)) then
      rows = size(a, 1, kind=int64)
      n = size(a, 2, kind=int64)
    end if
    if (.not. saved_length(name, rows, n, ierr, errmsg)) return
    if (allocated(a)) then
      if (size(a, 2, kind=int64) /= n) deallocate (a)
    end if
    if (.not. allocated(a)) allocate (a(rows, n))
    call place(name, c_loc(a), size(a, kind=c_size_t), HF_FLOAT, .true., ierr, errmsg)
  end subroutine

  subroutine allocatable2_real64(name, a, ierr, errmsg)
    character(*), intent(in) :: name
    real(real64), allocatable, target, intent(inout) :: a(:, :)
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg
    integer(int64) :: n, rows

    rows = 0
    n = 0
    if (allocated(a)) then
      rows = size(a, 1, kind=int64)
      n = size(a, 2, kind=int64)
    end if
    if (.not. saved_length(name, rows, n, ierr, errmsg)) return
    if (allocated(a)) then
      if (size(a, 2, kind=int64) /= n) deallocate (a)
    end if
    if (.not. allocated(a)) allocate (a(rows, n))
    call place(name, c_loc(a), size(a, kind=c_size_t), HF_DOUBLE, .true., ierr, errmsg)
  end subroutine

  ! Sets n to the number of columns, of the given number of rows, that an array has in the checkpoint which hf_restore
  ! will restore. It leaves n if the array is not there, and after hf_restore. False after an error, which it reports.
  logical function saved_length(name, rows, n, ierr, errmsg)
    character(*), intent(in) :: name
    integer(int64), intent(in) :: rows
    integer(int64), intent(inout) :: n
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg
    integer(c_size_t) :: count
    integer :: code

    count = 0
    code = c_saved(trim(name)//c_null_char, count, c_null_ptr)
    saved_length = code >= 0 .or. code == HF_E_ORDER ! then hf_protect reports a call that is too early
    if (.not. saved_length) call report(code, ierr, errmsg)
    if (code /= found_code) return
    if (rows == 0) then
      saved_length = count == 0
    else
      saved_length = modulo(int(count, int64), rows) == 0
    end if
    if (saved_length) then
      if (rows > 0) n = int(count, int64) / rows
    else
      call refuse(HF_E_ARG, "hf_protect_allocatable """//name//""": the checkpoint does not have columns of this many &
                    &rows; allocate it with the first dimension that it had", ierr, errmsg)
    end if
  end function

  subroutine protect_address(name, address, count, type, ierr, errmsg)
    character(*), intent(in) :: name
    type(c_ptr), intent(in) :: address
    integer(c_size_t), intent(in) :: count
    integer, intent(in) :: type
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg

    call place(name, address, count, type, .true., ierr, errmsg)
  end subroutine

#if __GNUC__ >= 12
  integer(c_int) function c_whole(a) bind(C, name="hf_fortran_whole")
    type(*), intent(in) :: a(..)

    c_whole = merge(1_c_int, 0_c_int, is_contiguous(a))
  end function
#endif

  subroutine place(name, address, count, type, contiguous, ierr, errmsg)
    character(*), intent(in) :: name
    type(c_ptr), intent(in) :: address
    integer(c_size_t), intent(in) :: count
    integer, intent(in) :: type
    logical, intent(in) :: contiguous
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg
    integer :: code

    if (.not. contiguous) then
      call complain_of_parts("hf_protect", name, ierr, errmsg)
      return
    end if
    code = c_protect(trim(name)//c_null_char, address, count, int(type, c_int))
    call report(code, ierr, errmsg)
  end subroutine

  subroutine replicated_int32(name, a, ierr, errmsg)
    character(*), intent(in) :: name
    integer(int32), pointer, intent(in) :: a(..)
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg

    call place_replicated(name, c_loc(a), size(a, kind=c_size_t), HF_INT32, WHOLE(a), ierr, errmsg)
  end subroutine

  subroutine replicated_int64(name, a, ierr, errmsg)
    character(*), intent(in) :: name
    integer(int64), pointer, intent(in) :: a(..)
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg

    call place_replicated(name, c_loc(a), size(a, kind=c_size_t), HF_INT64, WHOLE(a), ierr, errmsg)
  end subroutine

  subroutine replicated_real32(name, a, ierr, errmsg)
    character(*), intent(in) :: name
    real(real32), pointer, intent(in) :: a(..)
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg

    call place_replicated(name, c_loc(a), size(a, kind=c_size_t), HF_FLOAT, WHOLE(a), ierr, errmsg)
  end subroutine

  subroutine replicated_real64(name, a, ierr, errmsg)
    character(*), intent(in) :: name
    real(real64), pointer, intent(in) :: a(..)
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg

    call place_replicated(name, c_loc(a), size(a, kind=c_size_t), HF_DOUBLE, WHOLE(a), ierr, errmsg)
  end subroutine

  subroutine replicated_logical8(name, a, ierr, errmsg)
    character(*), intent(in) :: name
    logical(int8), pointer, intent(in) :: a(..)
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg

    call place_replicated(name, c_loc(a), size(a, kind=c_size_t), HF_INT8, WHOLE(a), ierr, errmsg)
  end subroutine

  subroutine replicated_logical32(name, a, ierr, errmsg)
    character(*), intent(in) :: name
    logical(int32), pointer, intent(in) :: a(..)
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg

    call place_replicated(name, c_loc(a), size(a, kind=c_size_t), HF_INT32, WHOLE(a), ierr, errmsg)
  end subroutine

  subroutine replicated_logical64(name, a, ierr, errmsg)
    character(*), intent(in) :: name
    logical(int64), pointer, intent(in) :: a(..)
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg

    call place_replicated(name, c_loc(a), size(a, kind=c_size_t), HF_INT64, WHOLE(a), ierr, errmsg)
  end subroutine

  subroutine replicated_character(name, a, ierr, errmsg)
    character(*), intent(in) :: name
    character(*), pointer, intent(in) :: a(..)
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg

    call place_replicated(name, c_loc(a), size(a, kind=c_size_t) * len(a), HF_BYTE, WHOLE(a), ierr, errmsg)
  end subroutine

  subroutine replicated_address(name, address, count, type, ierr, errmsg)
    character(*), intent(in) :: name
    type(c_ptr), intent(in) :: address
    integer(c_size_t), intent(in) :: count
    integer, intent(in) :: type
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg

    call place_replicated(name, address, count, type, .true., ierr, errmsg)
  end subroutine

  subroutine place_replicated(name, address, count, type, contiguous, ierr, errmsg)
    character(*), intent(in) :: name
    type(c_ptr), intent(in) :: address
    integer(c_size_t), intent(in) :: count
    integer, intent(in) :: type
    logical, intent(in) :: contiguous
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg
    integer :: code

    if (.not. contiguous) then
      call complain_of_parts("hf_protect_replicated", name, ierr, errmsg)
      return
    end if
    code = c_protect_replicated(trim(name)//c_null_char, address, count, int(type, c_int))
    call report(code, ierr, errmsg)
  end subroutine

  subroutine global_int32(name, a, lengths, first, low, high, block, stride, ierr, errmsg)
    character(*), intent(in) :: name
    integer(int32), pointer, intent(in) :: a(..)
    integer, intent(in) :: lengths(:), first(:)
    integer, optional, intent(in) :: low(:), high(:), block(:), stride(:)
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg

    call place_global(name, c_loc(a), HF_INT32, shape(a, kind=int64), WHOLE(a), lengths, first, low, high, &
                      block, stride, ierr, errmsg)
  end subroutine

  subroutine global_int64(name, a, lengths, first, low, high, block, stride, ierr, errmsg)
    character(*), intent(in) :: name
    integer(int64), pointer, intent(in) :: a(..)
    integer, intent(in) :: lengths(:), first(:)
    integer, optional, intent(in) :: low(:), high(:), block(:), stride(:)
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg

    call place_global(name, c_loc(a), HF_INT64, shape(a, kind=int64), WHOLE(a), lengths, first, low, high, &
                      block, stride, ierr, errmsg)
  end subroutine

  subroutine global_real32(name, a, lengths, first, low, high, block, stride, ierr, errmsg)
    character(*), intent(in) :: name
    real(real32), pointer, intent(in) :: a(..)
    integer, intent(in) :: lengths(:), first(:)
    integer, optional, intent(in) :: low(:), high(:), block(:), stride(:)
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg

    call place_global(name, c_loc(a), HF_FLOAT, shape(a, kind=int64), WHOLE(a), lengths, first, low, high, &
                      block, stride, ierr, errmsg)
  end subroutine

  subroutine global_real64(name, a, lengths, first, low, high, block, stride, ierr, errmsg)
    character(*), intent(in) :: name
    real(real64), pointer, intent(in) :: a(..)
    integer, intent(in) :: lengths(:), first(:)
    integer, optional, intent(in) :: low(:), high(:), block(:), stride(:)
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg

    call place_global(name, c_loc(a), HF_DOUBLE, shape(a, kind=int64), WHOLE(a), lengths, first, low, high, &
                      block, stride, ierr, errmsg)
  end subroutine

  subroutine global_complex32(name, a, lengths, first, low, high, block, stride, ierr, errmsg)
    character(*), intent(in) :: name
    complex(real32), pointer, intent(in) :: a(..)
    integer, intent(in) :: lengths(:), first(:)
    integer, optional, intent(in) :: low(:), high(:), block(:), stride(:)
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg

    call place_global(name, c_loc(a), HF_FLOAT_COMPLEX, shape(a, kind=int64), WHOLE(a), lengths, first, &
                      low, high, block, stride, ierr, errmsg)
  end subroutine

  subroutine global_complex64(name, a, lengths, first, low, high, block, stride, ierr, errmsg)
    character(*), intent(in) :: name
    complex(real64), pointer, intent(in) :: a(..)
    integer, intent(in) :: lengths(:), first(:)
    integer, optional, intent(in) :: low(:), high(:), block(:), stride(:)
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg

    call place_global(name, c_loc(a), HF_DOUBLE_COMPLEX, shape(a, kind=int64), WHOLE(a), lengths, first, &
                      low, high, block, stride, ierr, errmsg)
  end subroutine

  subroutine global_address(name, address, count, type, lengths, boxes, ierr, errmsg)
    character(*), intent(in) :: name
    type(c_ptr), intent(in) :: address
    integer(c_size_t), intent(in) :: count
    integer, intent(in) :: type
    integer(int64), intent(in) :: lengths(:)
    type(hf_box), intent(in) :: boxes(:)
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg
    integer :: code

    code = c_protect_global(trim(name)//c_null_char, address, count, int(type, c_int), size(lengths, kind=c_int), &
                            int(lengths, c_int64_t), boxes, size(boxes, kind=c_size_t))
    call report(code, ierr, errmsg)
  end subroutine

  ! Protects a variable as the rank's one box, with its dimensions in the order of C.
  subroutine place_global(name, address, type, extent, contiguous, lengths, first, low, high, block, stride, ierr, &
                          errmsg)
    character(*), intent(in) :: name
    type(c_ptr), intent(in) :: address
    integer, intent(in) :: type
    integer(int64), intent(in) :: extent(:)
    logical, intent(in) :: contiguous
    integer, intent(in) :: lengths(:), first(:)
    integer, optional, intent(in) :: low(:), high(:), block(:), stride(:)
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg
    type(hf_box) :: box(1)
    integer :: d, dims
    logical :: fits

    dims = size(extent)
    fits = size(lengths) == dims .and. size(first) == dims .and. dims >= 1 .and. dims <= HF_MAX_DIMS
    if (present(low)) fits = fits .and. size(low) == dims
    if (present(high)) fits = fits .and. size(high) == dims
    if (present(block)) fits = fits .and. size(block) == dims
    if (present(stride)) fits = fits .and. size(stride) == dims
    if (.not. fits) then
      call refuse(HF_E_ARG, "hf_protect_global """//name//""": the variable has 1 to 8 dimensions, and lengths, &
                    &first, low, high, block and stride have an entry for each", ierr, errmsg)
      return
    end if
    if (.not. contiguous) then
      call complain_of_parts("hf_protect_global", name, ierr, errmsg)
      return
    end if
    do d = 1, dims
      associate (c => dims - d + 1)
        if (present(low)) box(1)%low(c) = low(d)
        if (present(high)) box(1)%high(c) = high(d)
        if (present(block)) box(1)%block(c) = block(d)
        if (present(stride)) box(1)%stride(c) = stride(d)
        box(1)%start(c) = first(d) - 1_c_int64_t
        box(1)%count(c) = max(extent(d) - box(1)%low(c) - box(1)%high(c), 0_int64)
        if (box(1)%block(c) == 0) box(1)%stride(c) = 0
      end associate
    end do
    call global_address(name, address, product(int(extent, c_size_t)), type, int(lengths(dims:1:-1), int64), box, &
                        ierr, errmsg)
  end subroutine

  subroutine complain_of_parts(call, name, ierr, errmsg)
    character(*), intent(in) :: call, name
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg

    call refuse(HF_E_ARG, call//" """//name//""": it is not allocated, or a part of an array whose elements do not &
                  &lie one behind the other; protect the whole array", ierr, errmsg)
  end subroutine

  ! Returns the code of a call to the caller. Without ierr it ends the program after an error.
  subroutine report(code, ierr, errmsg)
    integer, intent(in) :: code
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg

    if (allocated(refused)) deallocate (refused)
    if (present(ierr)) ierr = HF_OK
    if (code < 0) call complain(code, hf_error(), ierr, errmsg)
  end subroutine

  ! Reports a call that this module refuses; hf_error returns the text too.
  subroutine refuse(code, text, ierr, errmsg)
    integer, intent(in) :: code
    character(*), intent(in) :: text
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg

    refused = text
    call complain(code, text, ierr, errmsg)
  end subroutine

  subroutine complain(code, text, ierr, errmsg)
    integer, intent(in) :: code
    character(*), intent(in) :: text
    integer, optional, intent(out) :: ierr
    character(*), optional, intent(inout) :: errmsg

    if (present(errmsg)) errmsg = text
    if (present(ierr)) then
      ierr = code
      return
    end if
    write (error_unit, "(2a)") "holdfast: ", text
    flush (error_unit)
    error stop 1
  end subroutine
end module
