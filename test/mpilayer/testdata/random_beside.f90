! random_beside.f90: random_beside.h in Fortran, and what it shares with random.f90.
module base
  use, intrinsic :: iso_fortran_env, only: int32, int64, real64, output_unit
  use mpi_f08
  implicit none

  integer, parameter :: comms_n = 5, most = 4000, most_ranks = 8
  integer, parameter :: new = 0, post = 1, send = 2, receive = 3, wait_send = 4, collective = 5, free = 6, &
    exchange = 7, start = 8, finish = 9, fence = 10, write_row = 11, wait_row = 12, read_row = 13, check_row = 14

  type operation
    integer :: what, k
  end type

  type(operation) :: ops(0:4 * most - 1)
  integer :: operations = 0, rank, ranks, number
  type(MPI_Comm) :: comms(0:comms_n - 1)
  integer(int64) :: seed, state
  integer(int32), target :: pc = 0

contains

  integer function below(n)
    integer, intent(in) :: n

    state = ieor(state, ishft(state, 13))
    state = ieor(state, ishft(state, -7))
    state = ieor(state, ishft(state, 17))
    below = int(mod(ishft(state * 2685821657736338717_int64, -20), int(n, int64)))
  end function

  subroutine fail(what, k)
    character(*), intent(in) :: what
    integer, intent(in) :: k

    write (output_unit, "(a, i0, a, i0, a, i0, a, i0, 2a)") "rank ", rank, ": operation ", pc, " of seed ", seed, &
      ", message ", k, ": ", what
    flush (output_unit)
    call MPI_Abort(MPI_COMM_WORLD, 1)
  end subroutine

  subroutine add(what, k)
    integer, intent(in) :: what, k

    ops(operations) = operation(what, k)
    operations = operations + 1
  end subroutine
end module

module beside
  use, intrinsic :: iso_c_binding, only: c_f_pointer, c_ptr
  use base
  implicit none

  integer, parameter :: writes = 0, reads = 1, puts = 2, gets = 3, adds = 4, locks = 5, task_kinds = 6
  integer, parameter :: of_all = 0, of_fences = 1, of_locks = 2, windows_n = 3
  integer, parameter :: most_tasks = 1000, cells_n = 4096, counters_n = 8, block_n = 16, longest = 200, every_fence = 5
  integer(MPI_ADDRESS_KIND), parameter :: bytes = 8

  type task
    integer :: kind, rank, target, start_step, end_step, count, how, of, first, at
    real(real64), pointer :: out(:) => null()
    type(MPI_Request) :: request
  end type

  type window_cells
    real(real64), pointer, contiguous :: of(:) => null()
  end type

  type(task), target :: t(0:most_tasks - 1)
  integer :: tasks = 0, come
  type(MPI_File) :: own, common
  type(MPI_Win) :: windows(0:windows_n - 1)
  type(window_cells) :: cells(0:windows_n - 1)
  real(real64), pointer, contiguous :: gained(:), row(:), block(:)
  type(MPI_Request) :: rows

contains

  real(real64) function task_value(k, i)
    integer, intent(in) :: k, i

    task_value = -1 - k * 1000 - mod(i, 997)
  end function

  integer function task_before(kind, of_rank, step)
    integer, intent(in) :: kind, of_rank, step
    integer :: from, i, k

    from = below(tasks + 1)
    task_before = -1
    do i = 0, tasks - 1
      k = mod(from + i, tasks)
      if (t(k)%kind == kind .and. t(k)%rank == of_rank .and. t(k)%end_step < step) then
        task_before = k
        return
      end if
    end do
  end function

  subroutine plan_beside(steps)
    integer, intent(in) :: steps
    integer :: s, n, in_file, in_window, got(0:most_ranks - 1)

    in_file = 0
    in_window = counters_n
    got = 0
    do s = 0, steps - 1
      n = below(2 * ranks)
      do n = n, 1, -1
        if (tasks >= most_tasks) exit
        associate (x => t(tasks))
          x%kind = below(task_kinds)
          x%rank = below(ranks)
          x%target = below(ranks)
          x%start_step = s
          x%end_step = s + below(4)
          x%how = below(3)
          if (below(8) == 0) then
            x%count = 1 + below(200)
          else
            x%count = 1 + below(8)
          end if
          if (x%kind == locks .or. x%end_step >= steps) x%end_step = s
          if (x%kind == reads .or. x%kind == gets) then
            x%of = task_before(merge(writes, puts, x%kind == reads), x%rank, s)
            if (x%of < 0) cycle
            x%target = t(x%of)%target
            x%count = t(x%of)%count
            x%first = t(x%of)%first
            x%at = got(x%rank)
            got(x%rank) = got(x%rank) + x%count
          else if (x%kind == writes) then
            x%first = in_file
            in_file = in_file + x%count
          else if (x%kind == adds) then
            x%first = below(counters_n)
            x%count = 1
          else if (in_window + x%count > cells_n) then
            cycle
          else
            x%first = in_window
            in_window = in_window + x%count
          end if
          x%request = MPI_REQUEST_NULL
        end associate
        tasks = tasks + 1
      end do
    end do
    come = got(rank) + 1
  end subroutine

  ! Open MPI has windows of memory that it has not allocated only if ranks may read the memory of others.
  subroutine make_window(allocated_one, i)
    logical, intent(in) :: allocated_one
    integer, intent(in) :: i
    integer :: code
    type(c_ptr) :: at

    code = MPI_ERR_WIN
    if (.not. allocated_one) then
      call MPI_Alloc_mem(cells_n * bytes, MPI_INFO_NULL, at)
      call c_f_pointer(at, cells(i)%of, [cells_n])
      call MPI_Comm_set_errhandler(comms(1), MPI_ERRORS_RETURN)
      call MPI_Win_create(cells(i)%of, cells_n * bytes, int(bytes), MPI_INFO_NULL, comms(1), windows(i), code)
      call MPI_Comm_set_errhandler(comms(1), MPI_ERRORS_ARE_FATAL)
    end if
    if (code /= MPI_SUCCESS) then
      call MPI_Win_allocate(cells_n * bytes, int(bytes), MPI_INFO_NULL, comms(1), at, windows(i))
      call c_f_pointer(at, cells(i)%of, [cells_n])
    end if
    cells(i)%of(0:) => cells(i)%of
    cells(i)%of = 0
  end subroutine

  subroutine open_beside(dir, allocated_ones)
    character(*), intent(in) :: dir
    logical, intent(in) :: allocated_ones
    integer :: i

    do i = 0, windows_n - 1
      call make_window(allocated_ones, i)
    end do
    call MPI_File_open(comms(1), dir // "/own", MPI_MODE_CREATE + MPI_MODE_RDWR, MPI_INFO_NULL, own)
    call MPI_File_open(comms(1), dir // "/common", MPI_MODE_CREATE + MPI_MODE_RDWR, MPI_INFO_NULL, common)
    allocate (gained(0:come - 1), row(0:ranks * block_n - 1), block(0:block_n - 1))
    gained = 0
    row = 0
    rows = MPI_REQUEST_NULL
  end subroutine

  subroutine locked(k)
    integer, intent(in) :: k
    real(real64), asynchronous :: back(longest)
    integer(MPI_ADDRESS_KIND) :: first

    associate (x => t(k), w => windows(of_locks))
      first = x%first
      call MPI_Win_lock(merge(MPI_LOCK_EXCLUSIVE, MPI_LOCK_SHARED, x%how == 0), x%target, 0, w)
      call MPI_Put(x%out, x%count, MPI_DOUBLE_PRECISION, x%target, first, x%count, MPI_DOUBLE_PRECISION, w)
      if (x%how == 2) then
        call MPI_Win_flush(x%target, w)
        call MPI_Get(back, x%count, MPI_DOUBLE_PRECISION, x%target, first, x%count, MPI_DOUBLE_PRECISION, w)
      end if
      call MPI_Win_unlock(x%target, w)
      if (x%how == 2) call check_values(back, k, x%count, "a locked window has other contents")
    end associate
  end subroutine

  subroutine start_task(k)
    integer, intent(in) :: k
    integer :: i, n, to
    integer(MPI_ADDRESS_KIND) :: first
    integer(MPI_OFFSET_KIND) :: at
    logical :: r

    associate (x => t(k), w => windows(of_all), dp => MPI_DOUBLE_PRECISION)
      n = x%count
      to = x%target
      r = x%how == 1
      first = x%first
      at = x%first * bytes
      allocate (x%out(0:n - 1))
      do i = 0, n - 1
        x%out(i) = merge(real(1 + k, real64), task_value(k, i), x%kind == adds)
      end do
      select case (x%kind)
      case (writes)
        call MPI_File_iwrite_at(own, at, x%out, n, dp, x%request)
      case (reads)
        call MPI_File_iread_at(own, at, gained(x%at:x%at + n - 1), n, dp, x%request)
      case (puts)
        if (r) call MPI_Rput(x%out, n, dp, to, first, n, dp, w, x%request)
        if (.not. r) call MPI_Put(x%out, n, dp, to, first, n, dp, w)
      case (gets)
        if (r) call MPI_Rget(gained(x%at:x%at + n - 1), n, dp, to, first, n, dp, w, x%request)
        if (.not. r) call MPI_Get(gained(x%at:x%at + n - 1), n, dp, to, first, n, dp, w)
      case (adds)
        if (r) call MPI_Raccumulate(x%out, n, dp, to, first, n, dp, MPI_SUM, w, x%request)
        if (.not. r) call MPI_Accumulate(x%out, n, dp, to, first, n, dp, MPI_SUM, w)
      case default
        call locked(k)
      end select
    end associate
  end subroutine

  subroutine check_values(in, k, n, what)
    real(real64), intent(in) :: in(0:)
    integer, intent(in) :: k, n
    character(*), intent(in) :: what
    integer :: i

    do i = 0, n - 1
      if (in(i) /= task_value(k, i)) call fail(what, k)
    end do
  end subroutine

  subroutine end_task(k)
    integer, intent(in) :: k

    associate (x => t(k))
      call MPI_Wait(x%request, MPI_STATUS_IGNORE)
      if (x%kind == puts .or. x%kind == gets .or. x%kind == adds) then ! no flush_local: MPICH 4.0 does not wait in it
        if (x%how == 2) call MPI_Win_flush_all(windows(of_all))
        if (x%how /= 2) call MPI_Win_flush(x%target, windows(of_all))
      end if
      if (x%kind == reads) call check_values(gained(x%at:), x%of, x%count, "a file")
      if (x%kind == gets) call check_values(gained(x%at:), x%of, x%count, "a get")
      if (associated(x%out)) deallocate (x%out)
    end associate
  end subroutine

  subroutine run_fence(s)
    integer, intent(in) :: s
    integer :: right, left
    integer(MPI_ADDRESS_KIND) :: cell
    real(real64), asynchronous :: mine, one, back

    right = mod(rank + 1, ranks)
    left = mod(rank + ranks - 1, ranks)
    cell = counters_n + s
    mine = task_value(s, rank)
    one = 1
    associate (w => windows(of_fences), dp => MPI_DOUBLE_PRECISION)
      call MPI_Win_fence(MPI_MODE_NOPRECEDE, w)
      call MPI_Put(mine, 1, dp, right, cell, 1, dp, w)
      call MPI_Accumulate(one, 1, dp, 0, 0_MPI_ADDRESS_KIND, 1, dp, MPI_SUM, w)
      if (s >= every_fence) call MPI_Get(back, 1, dp, right, cell - every_fence, 1, dp, w)
      call MPI_Win_fence(MPI_MODE_NOSUCCEED, w)
    end associate
    if (.not. MPI_ASYNC_PROTECTS_NONBLOCKING) call MPI_F_sync_reg(back)
    if (cells(of_fences)%of(cell) /= task_value(s, left)) call fail("a fence", s)
    if (s >= every_fence) then
      if (back /= task_value(s - every_fence, rank)) call fail("a get by a fence", s)
    end if
  end subroutine

  integer(MPI_OFFSET_KIND) function row_at(s, of_rank)
    integer, intent(in) :: s, of_rank

    row_at = (s * ranks + of_rank) * block_n * bytes
  end function

  subroutine run_row(o)
    type(operation), intent(in) :: o
    integer :: i

    associate (dp => MPI_DOUBLE_PRECISION, s => o%k)
      select case (o%what)
      case (write_row)
        do i = 0, block_n - 1
          block(i) = task_value(s, rank + i)
        end do
        if (mod(s, 8) == 1) then
          call MPI_File_iwrite_at_all(common, row_at(s, rank), block, block_n, dp, rows)
        else
          call MPI_File_write_at_all(common, row_at(s, rank), block, block_n, dp, MPI_STATUS_IGNORE)
        end if
      case (read_row)
        call MPI_Barrier(comms(1))
        call MPI_File_iread_at_all(common, row_at(s, 0), row, ranks * block_n, dp, rows)
      case default
        call MPI_Wait(rows, MPI_STATUS_IGNORE)
        do i = 0, merge(ranks * block_n, 0, o%what == check_row) - 1
          if (row(i) /= task_value(s, i / block_n + mod(i, block_n))) call fail("a row of the file", s)
        end do
      end select
    end associate
  end subroutine

  subroutine list_starts(s)
    integer, intent(in) :: s
    integer :: k

    do k = 0, tasks - 1
      if (t(k)%rank == rank .and. t(k)%start_step == s) call add(start, k)
    end do
  end subroutine

  subroutine list_ends(s, steps)
    integer, intent(in) :: s, steps
    integer :: k

    do k = 0, tasks - 1
      if (t(k)%rank == rank .and. t(k)%end_step == s) call add(finish, k)
    end do
    if (mod(s, every_fence) == every_fence - 1) call add(fence, s)
    if (mod(s, 4) == 1 .and. s < steps) call add(write_row, s)
    if (mod(s, 8) == 2) call add(wait_row, s - 1)
    if (mod(s, 4) == 3 .and. s < steps) call add(read_row, s - 2)
    if (mod(s, 4) == 0 .and. s > 0) call add(check_row, s - 3)
  end subroutine

  subroutine run_beside(o)
    type(operation), intent(in) :: o

    select case (o%what)
    case (start)
      call start_task(o%k)
    case (finish)
      call end_task(o%k)
    case (fence)
      call run_fence(o%k)
    case default
      call run_row(o)
    end select
  end subroutine

  subroutine check_beside()
    real(real64) :: counters(0:counters_n - 1), record(longest)
    integer :: k

    counters = 0
    call MPI_Win_unlock_all(windows(of_all))
    call MPI_File_sync(own)
    call MPI_Barrier(comms(1))
    call MPI_File_sync(own)
    do k = 0, tasks - 1
      associate (x => t(k), w => windows(of_locks))
        if (x%kind == writes .and. x%rank == mod(rank + 1, ranks)) then
          call MPI_File_read_at(own, int(x%first * bytes, MPI_OFFSET_KIND), record, x%count, MPI_DOUBLE_PRECISION, &
            MPI_STATUS_IGNORE)
          call check_values(record, k, x%count, "a file at the end")
        else if (x%kind == puts .and. x%target == rank) then
          call check_values(cells(of_all)%of(x%first:), k, x%count, "a window at the end")
        else if (x%kind == locks .and. x%target == rank) then
          call MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, w)
          call check_values(cells(of_locks)%of(x%first:), k, x%count, "a locked window at the end")
          call MPI_Win_unlock(rank, w)
        else if (x%kind == adds .and. x%target == rank) then
          counters(x%first) = counters(x%first) + k + 1
        end if
      end associate
    end do
    if (any(counters /= cells(of_all)%of(0:counters_n - 1))) call fail("a counter", 0)
  end subroutine

  subroutine close_beside()
    integer :: i

    do i = 0, windows_n - 1
      call MPI_Win_free(windows(i))
    end do
    call MPI_File_close(own)
    call MPI_File_close(common)
  end subroutine
end module
