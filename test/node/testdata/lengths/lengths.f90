! lengths in Fortran: see lengths.c.
program lengths
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: int8, int32, int64, real64
  use holdfast
  implicit none
  interface
    subroutine leave(code) bind(C, name="_exit")
      import :: c_int
      integer(c_int), value :: code
    end subroutine
  end interface
  integer(int64), target :: step
  real(real64), allocatable, target :: a(:)
  integer(int32), allocatable, target :: b(:)
  character(1), allocatable, target :: s(:)
  integer(int64) :: seed, until, at
  character(32) :: word
  integer :: rank, stat
  logical :: restored, stop_now

  call get_command_argument(1, word)
  read (word, *) seed
  call get_command_argument(2, word)
  read (word, *) until
  call get_command_argument(3, word)
  read (word, *) at
  rank = 0
  call get_environment_variable("PMI_RANK", word, status=stat)
  if (stat == 0) read (word, *) rank
  step = 0
  call hf_init()
  call hf_protect("step", step)
  call protect()
  call hf_restore(restored)
  if (restored) call compare()
  print "(a, i0)", "lengths: begins at step ", step
  do
    call fill()
    call protect()
    if (step == at) then
      call hf_checkpoint(stop_now)
    else
      call hf_point(stop_now)
    end if
    if (step >= until) exit
    step = step + 1
  end do
  call hf_wait()
  print "(a, i0)", "lengths: ends at step ", step
  flush (6)
  if (command_argument_count() > 4) call leave(0_c_int)
  call hf_finalize()
contains
  integer(int64) function mix(k, t, i)
    integer(int64), intent(in) :: k, t, i
    integer(int64) :: of(4)
    integer :: j

    of = [int(rank, int64), k, t, i]
    mix = seed
    do j = 1, 4
      mix = modulo(mix * 1103 + of(j) * 7919 + 12345, 65521_int64)
    end do
  end function

  integer function length(k)
    integer(int64), intent(in) :: k
    length = int(modulo(mix(k, step / 3, -1_int64), 40_int64))
  end function

  subroutine protect()
    call hf_protect_allocatable("a", a)
    call hf_protect_allocatable("b", b)
    call hf_protect_allocatable("s", s)
  end subroutine

  subroutine fill()
    integer(int64) :: i

    if (size(a) /= length(0_int64) .or. size(b) /= length(1_int64) .or. size(s) /= length(2_int64)) then
      deallocate (a, b, s)
      allocate (a(length(0_int64)), b(length(1_int64)), s(length(2_int64)))
    end if
    do i = 1, size(a, kind=int64)
      a(i) = real(mix(0_int64, step, i - 1), real64)
    end do
    do i = 1, size(b, kind=int64)
      b(i) = int(mix(1_int64, step, i - 1), int32)
    end do
    do i = 1, size(s, kind=int64)
      s(i) = achar(int(modulo(mix(2_int64, step, i - 1), 256_int64)))
    end do
  end subroutine

  subroutine compare()
    integer(int64) :: i
    logical :: same

    same = size(a) == length(0_int64) .and. size(b) == length(1_int64) .and. size(s) == length(2_int64)
    do i = 1, size(a, kind=int64)
      same = same .and. a(i) == real(mix(0_int64, step, i - 1), real64)
    end do
    do i = 1, size(b, kind=int64)
      same = same .and. b(i) == int(mix(1_int64, step, i - 1), int32)
    end do
    do i = 1, size(s, kind=int64)
      same = same .and. s(i) == achar(int(modulo(mix(2_int64, step, i - 1), 256_int64)))
    end do
    if (same) return
    print "(a, i0)", "lengths: wrong at step ", step
    error stop 4
  end subroutine
end program
