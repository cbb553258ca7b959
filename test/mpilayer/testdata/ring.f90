! ring.f90: as ring.c, with mpi_f08: a vector to the right neighbour is in flight at each point. usage: ring STEPS
program ring
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
  real(real64), asynchronous :: out(0:cells - 1), in(0:cells - 1)
  integer(int64), target :: total
  integer(int32), target :: step
  integer :: rank, ranks, left, right, i, n, steps, status
  type(MPI_Comm) :: around
  type(MPI_Datatype) :: pairs
  type(MPI_Request) :: sent
  type(MPI_Status) :: st
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
  sent = MPI_REQUEST_NULL
  total = 0
  step = 0
  call hf_init_mpi(MPI_COMM_WORLD)
  call hf_protect("sum", total)
  call hf_protect("step", step)
  call hf_restore(restored)
  write (output_unit, "(a, i0, a, i0)") "rank ", rank, " begins at step ", step
  flush (output_unit)
  if (.not. restored) call send(0)
  do while (step < steps)
    if (.not. restored .and. rank == 1 .and. step == steps / 2) status = raise(sigusr2)
    if (.not. restored .and. rank == 1 .and. step > steps / 2) status = usleep(1000_c_int) ! the daemon hears of it
    if (mod(step, rank + 2) == 0) then
      call hf_point(stop_now)
      if (stop_now) status = raise(sigkill)
    end if
    in = -1
    call MPI_Recv(in, 1, pairs, MPI_ANY_SOURCE, MPI_ANY_TAG, around, st)
    call MPI_Get_count(st, MPI_DOUBLE_PRECISION, n)
    if (st%MPI_SOURCE /= left .or. st%MPI_TAG /= mod(step, 7) .or. n /= cells / 5 * 2) then
      write (output_unit, *) "rank", rank, "step", step, "from", st%MPI_SOURCE, "tag", st%MPI_TAG, "count", n
      call MPI_Abort(MPI_COMM_WORLD, 1)
    end if
    do i = 0, cells - 1
      if (in(i) /= merge(real(left + i + step, real64), -1.0_real64, mod(i, 5) < 2)) then
        write (output_unit, *) "rank", rank, "step", step, "element", i, in(i)
        call MPI_Abort(MPI_COMM_WORLD, 1)
      end if
      total = total * 31 + int(in(i) + 1, int64)
    end do
    call MPI_Wait(sent, MPI_STATUS_IGNORE)
    step = step + 1
    if (step < steps) call send(step)
  end do
  write (output_unit, "(a, i0, a, i0)") "rank ", rank, " sum ", total
  flush (output_unit)
  call MPI_Type_free(pairs)
  call MPI_Comm_free(around)
  call hf_finalize()
  call MPI_Finalize()

contains

  subroutine send(of)
    integer, intent(in) :: of
    integer :: k

    out = [(rank + k + of, k = 0, cells - 1)]
    call MPI_Isend(out, 1, pairs, right, mod(of, 7), around, sent)
  end subroutine

end program
