! heat solves the heat equation du/dt = a (d2u/dx2 + d2u/dy2) on a square with fixed borders, by explicit steps.
!
! The grid of n x n cells is cut into blocks, one for each rank, each with a border of one cell that holds its
! neighbours' cells. A step exchanges the borders and computes
!
!     u'(j,i) = u(j,i) + r (u(j,i-1) + u(j,i+1) + u(j-1,i) + u(j+1,i) - 4 u(j,i)),   r = a dt / dx^2 <= 1/4
!
! where i is the row and j the column. The result is the same, bit by bit, for any number of ranks, and that of
! examples/heat-c. It is checkpointed with Holdfast: kill it, start it again, also under another MPI
! or with another number of ranks, and the result is what it would have been.
!
!     usage: heat N STEPS [FILE [MILLISECONDS]]
!
! FILE takes the grid, row by row, as doubles; MILLISECONDS is the least time of a step, to watch it run.
!
! hf_ marks what a checkpoint needs. docs/LANGUAGES.md says how to build it.
program heat
  use, intrinsic :: iso_fortran_env, only: real64, int64, output_unit, error_unit
  use mpi_f08
  use holdfast
  use holdfast_mpi
  implicit none

  real(real64), parameter :: r = 0.2_real64
  type(MPI_Comm) :: grid
  integer :: n, steps, pause, rank, up, down, left, right
  integer :: row0, col0, rows, cols ! of this rank's block, without its border
  integer, target :: step
  real(real64), allocatable, target :: u(:,:)
  real(real64), allocatable :: next(:,:)
  character(:), allocatable :: file
  logical :: stop_now

  call arguments()
  call hf_start() ! before MPI: it may start a process
  call MPI_Init()
  call make_block()
  call begin()

  step = 0
  stop_now = .false.
  call hf_elastic()
  call hf_init_mpi(MPI_COMM_WORLD)
  call hf_protect_replicated("step", step)
  call hf_protect_global("u", u, [n, n], first=[col0 + 1, row0 + 1], low=[1, 1], high=[1, 1])
  call hf_restore()
  if (rank == 0) write (output_unit, "(a, i0)") "heat: begins at step ", step
  flush (output_unit)
  do while (step < steps)
    call hf_point(stop_now)
    if (stop_now) exit
    call exchange()
    call compute()
    step = step + 1
    if (pause > 0) call sleep_ms(pause)
  end do
  if (.not. stop_now .and. allocated(file)) call save()
  if (rank == 0) write (output_unit, "(a, i0)") "heat: ends at step ", step
  flush (output_unit)
  call hf_finalize()
  call MPI_Comm_free(grid)
  call MPI_Finalize()
  if (stop_now) stop 75, quiet = .true.

contains

  subroutine arguments()
    character(4096) :: word

    if (command_argument_count() < 2 .or. command_argument_count() > 4) then
      write (error_unit, "(a)") "usage: heat N STEPS [FILE [MILLISECONDS]]"
      stop 2, quiet = .true.
    end if
    n = number(1)
    steps = number(2)
    pause = 0
    if (command_argument_count() > 2) then
      call get_command_argument(3, word)
      file = trim(word)
    end if
    if (command_argument_count() > 3) pause = number(4)
  end subroutine

  integer function number(i)
    integer, intent(in) :: i
    character(32) :: word
    integer :: status

    call get_command_argument(i, word)
    read (word, *, iostat=status) number
    if (status == 0 .and. number >= 0) return
    write (error_unit, "(3a)") "heat: """, trim(word), """ is no number"
    stop 2, quiet = .true.
  end function

  ! First cell of the part-th of so many parts of n cells.
  integer function part_begin(part, parts)
    integer, intent(in) :: part, parts

    part_begin = int(int(n, int64) * part / parts)
  end function

  subroutine make_block()
    integer :: size, dims(2), at(2)

    call MPI_Comm_size(MPI_COMM_WORLD, size)
    dims = 0
    call MPI_Dims_create(size, 2, dims)
    call MPI_Cart_create(MPI_COMM_WORLD, 2, dims, [.false., .false.], .false., grid)
    call MPI_Comm_rank(grid, rank)
    call MPI_Cart_coords(grid, rank, 2, at)
    call MPI_Cart_shift(grid, 0, 1, up, down)
    call MPI_Cart_shift(grid, 1, 1, left, right)
    row0 = part_begin(at(1), dims(1))
    col0 = part_begin(at(2), dims(2))
    rows = part_begin(at(1) + 1, dims(1)) - row0
    cols = part_begin(at(2) + 1, dims(2)) - col0
    allocate (u(0:cols + 1, 0:rows + 1), next(0:cols + 1, 0:rows + 1), source=0.0_real64)
  end subroutine

  ! A hot square in the middle, and a slope that makes every cell another one.
  subroutine begin()
    integer :: i, j, row, col

    do i = 1, rows
      do j = 1, cols
        row = row0 + i - 1
        col = col0 + j - 1
        u(j, i) = merge(100.0_real64, 0.0_real64, &
                        row > n / 3 .and. row < 2 * n / 3 .and. col > n / 3 .and. col < 2 * n / 3)
        u(j, i) = u(j, i) + 0.01_real64 * row + 0.003_real64 * col
      end do
    end do
  end subroutine

  subroutine exchange()
    real(real64) :: mine(rows), others(rows) ! a column

    call MPI_Sendrecv(u(1, 1), cols, MPI_DOUBLE_PRECISION, up, 0, &
                      u(1, rows + 1), cols, MPI_DOUBLE_PRECISION, down, 0, grid, MPI_STATUS_IGNORE)
    call MPI_Sendrecv(u(1, rows), cols, MPI_DOUBLE_PRECISION, down, 1, &
                      u(1, 0), cols, MPI_DOUBLE_PRECISION, up, 1, grid, MPI_STATUS_IGNORE)
    mine = u(1, 1:rows)
    others = u(cols + 1, 1:rows)
    call MPI_Sendrecv(mine, rows, MPI_DOUBLE_PRECISION, left, 2, &
                      others, rows, MPI_DOUBLE_PRECISION, right, 2, grid, MPI_STATUS_IGNORE)
    u(cols + 1, 1:rows) = others
    mine = u(cols, 1:rows)
    others = u(0, 1:rows)
    call MPI_Sendrecv(mine, rows, MPI_DOUBLE_PRECISION, right, 3, &
                      others, rows, MPI_DOUBLE_PRECISION, left, 3, grid, MPI_STATUS_IGNORE)
    u(0, 1:rows) = others
  end subroutine

  subroutine compute()
    integer :: i, j

    do i = 1, rows
      do j = 1, cols
        next(j, i) = u(j, i) + r * (u(j, i - 1) + u(j, i + 1) + u(j - 1, i) + u(j + 1, i) - 4 * u(j, i))
      end do
    end do
    u(1:cols, 1:rows) = next(1:cols, 1:rows) ! u stays where it is protected
  end subroutine

  ! Rank 0 takes the blocks and writes the grid.
  subroutine save()
    real(real64), allocatable :: whole(:,:), block(:,:)
    integer :: size, other, place(4), unit

    place = [row0, col0, rows, cols]
    allocate (block, source=u(1:cols, 1:rows))
    if (rank /= 0) then
      call MPI_Send(place, 4, MPI_INTEGER, 0, 0, grid)
      call MPI_Send(block, rows * cols, MPI_DOUBLE_PRECISION, 0, 1, grid)
      return
    end if
    call MPI_Comm_size(grid, size)
    allocate (whole(n, n))
    do other = 0, size - 1
      if (other > 0) then
        call MPI_Recv(place, 4, MPI_INTEGER, other, 0, grid, MPI_STATUS_IGNORE)
        deallocate (block)
        allocate (block(place(4), place(3)))
        call MPI_Recv(block, place(3) * place(4), MPI_DOUBLE_PRECISION, other, 1, grid, MPI_STATUS_IGNORE)
      end if
      whole(place(2) + 1:place(2) + place(4), place(1) + 1:place(1) + place(3)) = block
    end do
    open (newunit=unit, file=file, access="stream", form="unformatted", status="replace", action="write")
    write (unit) whole
    close (unit)
  end subroutine

  subroutine sleep_ms(ms)
    use, intrinsic :: iso_c_binding, only: c_int
    integer, intent(in) :: ms
    interface
      integer(c_int) function usleep(microseconds) bind(C)
        import :: c_int
        integer(c_int), value :: microseconds
      end function
    end interface
    integer(c_int) :: code

    code = usleep(int(ms, c_int) * 1000_c_int)
  end subroutine
end program
