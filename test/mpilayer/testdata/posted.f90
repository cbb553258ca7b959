! posted.f90: a receive of a vector is pending across each point, and a persistent one, whose request is an integer; both
! requests are protected, and so is a persistent send. As in posted.c, rank 1 asks for a final checkpoint in the middle, and all kill
! themselves behind it. usage: posted STEPS
program posted
  use, intrinsic :: iso_fortran_env, only: int32, int64, real64, output_unit
  use, intrinsic :: iso_c_binding, only: c_int
  use mpi_f08
  use holdfast
  use holdfast_mpi
  implicit none

  interface
    integer(c_int) function raise(signal) bind(C, name="raise")
      import :: c_int
      integer(c_int), value :: signal
    end function
    integer(c_int) function usleep(microseconds) bind(C, name="usleep")
      import :: c_int
      integer(c_int), value :: microseconds
    end function
  end interface

  integer, parameter :: cells = 60
  integer(c_int), parameter :: sigkill = 9, sigusr2 = 12
  real(real64), target, asynchronous :: from_left(0:cells - 1), from_right(0:cells - 1), out(0:cells - 1)
  integer(int64), target :: total
  integer(int32), target :: step
  integer, target :: right_number
  integer :: rank, ranks, left, right, i, steps, status
  type(MPI_Comm) :: around
  type(MPI_Datatype) :: pairs
  type(MPI_Request), target :: left_request, send_request
  type(MPI_Request) :: right_request
  logical :: restored, stop_now
  character(32) :: word

  call get_command_argument(1, word)
  read (word, *) steps
  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks)
  call MPI_Comm_dup(MPI_COMM_WORLD, around)
  call MPI_Type_vector(cells / 5, 2, 5, MPI_DOUBLE_PRECISION, pairs)
  call MPI_Type_commit(pairs)
  left = mod(rank + ranks - 1, ranks)
  right = mod(rank + 1, ranks)
  left_request = MPI_REQUEST_NULL
  send_request = MPI_REQUEST_NULL
  right_number = MPI_REQUEST_NULL%MPI_VAL
  total = 0
  step = 0
  call hf_init_mpi(MPI_COMM_WORLD)
  call hf_protect("total", total)
  call hf_protect("step", step)
  call hf_protect("from left", from_left)
  call hf_protect("from right", from_right)
  call hf_protect("out", out)
  call hf_protect_request("left", left_request)
  call hf_protect_request("right", right_number)
  call hf_protect_request("send", send_request)
  call hf_restore(restored)
  write (output_unit, "(a, i0, a, i0)") "rank ", rank, " begins at step ", step
  flush (output_unit)
  if (.not. restored) then
    call MPI_Recv_init(from_right, cells, MPI_DOUBLE_PRECISION, right, 5, around, right_request)
    right_number = right_request%MPI_VAL
    call MPI_Send_init(out, 1, pairs, left, 5, around, send_request)
    call post()
  end if
  right_request%MPI_VAL = right_number
  do while (step < steps)
    if (.not. restored .and. rank == 1 .and. step == steps / 2) status = raise(sigusr2)
    if (.not. restored .and. rank == 1 .and. step > steps / 2) status = usleep(1000_c_int) ! the daemon hears of it
    if (mod(step, rank + 2) == 0) then
      call hf_point(stop_now)
      if (stop_now) status = raise(sigkill)
    end if
    out = [(rank + i + step, i = 0, cells - 1)]
    call MPI_Start(send_request)
    call MPI_Send(out, 1, pairs, right, 3, around)
    call MPI_Wait(left_request, MPI_STATUS_IGNORE)
    call MPI_Wait(right_request, MPI_STATUS_IGNORE)
    call MPI_Wait(send_request, MPI_STATUS_IGNORE)
    do i = 0, cells - 1
      if (from_left(i) /= merge(real(left + i + step, real64), -1.0_real64, mod(i, 5) < 2)) call wrong("left")
      total = total * 31 + int(from_left(i) + 1, int64)
    end do
    do i = 0, cells / 5 * 2 - 1
      if (from_right(i) /= right + i / 2 * 5 + mod(i, 2) + step) call wrong("right")
    end do
    step = step + 1
    if (step < steps) call post()
  end do
  write (output_unit, "(a, i0, a, i0)") "rank ", rank, " sum ", total
  flush (output_unit)
  call MPI_Request_free(right_request)
  call MPI_Request_free(send_request)
  call MPI_Type_free(pairs)
  call MPI_Comm_free(around)
  call hf_finalize()
  call MPI_Finalize()

contains

  subroutine post()
    from_left = -1
    call MPI_Irecv(from_left, 1, pairs, MPI_ANY_SOURCE, 3, around, left_request)
    call MPI_Start(right_request)
  end subroutine

  subroutine wrong(what)
    character(*), intent(in) :: what

    write (output_unit, *) "rank", rank, "step", step, "element", i, "from the ", what
    call MPI_Abort(MPI_COMM_WORLD, 1)
  end subroutine

end program
