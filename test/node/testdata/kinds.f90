! kinds protects a variable of each kind and of many ranks. The first start fills them and takes a checkpoint, the
! second restores them and compares. Errors come back as ierr and errmsg.
program kinds
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env
  use holdfast
  implicit none

  type :: point
    integer(int32) :: id
    real(real64) :: x
  end type

  integer(int8), target :: i1(3)
  integer(int16), target :: i2(2, 2)
  integer, target :: i4
  integer(int64), target :: i8(1, 2, 3)
  real, target :: r4(2, 2, 2, 2)
  real(real64), allocatable, target :: r8(:,:,:,:,:,:,:)
  complex, target :: c4(2)
  complex(real64), target :: c8
  logical, target :: l(4)
  logical(c_bool), target :: l1(3)
  character(5), target :: text(2)
  type(point), target :: p(3)
  real(real64), pointer :: view(:,:)
  real(real64), target :: grid(4, 6), share(0:3, 2)
  integer, target :: same(2)
  logical :: restored, stop_now
  character(1000) :: errmsg
  integer :: ierr, i

  allocate (r8(2, 1, 2, 1, 2, 1, 2), source=0.0_real64)
  call hf_restore(restored, ierr, errmsg)
  call expect(ierr == HF_E_ORDER .and. index(errmsg, "hf_init") > 0, "restore before init: "//trim(errmsg))
  call hf_init(program="kinds")
  call clear()
  view => grid(:, 2:5)
  call hf_protect("i1", i1)
  call hf_protect("i2", i2)
  call hf_protect("i4", i4)
  call hf_protect("i8", i8)
  call hf_protect("r4", r4)
  call hf_protect("r8", r8)
  call hf_protect("c4", c4)
  call hf_protect("c8", c8)
  call hf_protect("l", l)
  call hf_protect("l1", l1)
  call hf_protect("text", text)
  call hf_protect("view", view)
  call hf_protect("p", c_loc(p), int(size(p) * storage_size(p) / 8, c_size_t), HF_BYTE)
  call hf_protect_replicated("same", same)
  call hf_protect_global("share", share, [2, 2], first=[1, 1], low=[1, 0], high=[1, 0])
  call hf_protect_global("share", share, [2, 2], first=[2, 1], low=[1, 0], high=[1, 0], ierr=ierr, errmsg=errmsg)
  call expect(ierr == HF_E_ARG .and. index(errmsg, "outside") > 0, "a box that is outside: "//trim(errmsg))
  call hf_protect("part", grid(::2, :), ierr, errmsg)
  call expect(ierr == HF_E_ARG .and. index(errmsg, "part") > 0, "a part with holes: "//trim(errmsg))
  call expect(index(hf_error(), "part of an array") > 0, "a part with holes in hf_error: "//hf_error())
  call hf_protect("component", p%id, ierr, errmsg)
  call expect(ierr == HF_E_ARG .and. index(errmsg, "part") > 0, "a component: "//trim(errmsg))
  call hf_protect("component", p(2:3)%x, ierr, errmsg)
  call expect(ierr == HF_E_ARG .and. index(errmsg, "part") > 0, "a component of a part: "//trim(errmsg))
  call hf_protect("component", c4%re, ierr, errmsg)
  call expect(ierr == HF_E_ARG .and. index(errmsg, "part") > 0, "real parts: "//trim(errmsg))
  call hf_protect_replicated("component", p%id, ierr, errmsg)
  call expect(ierr == HF_E_ARG .and. index(errmsg, "part") > 0, "a replicated component: "//trim(errmsg))
  call hf_protect_global("component", p%id, [3], first=[1], ierr=ierr, errmsg=errmsg)
  call expect(ierr == HF_E_ARG .and. index(errmsg, "part") > 0, "a component of all ranks: "//trim(errmsg))
  call hf_protect("component", p(2)%id)
  call hf_unprotect("component")
  call hf_protect("i4", r4, ierr, errmsg)
  call expect(ierr /= HF_OK .and. index(errmsg, "i4") > 0, "another type: "//trim(errmsg))
  call hf_restore(restored)
  if (restored) then
    call expect(all(i1 == [1_int8, -2_int8, 3_int8]), "int8")
    call expect(all(i2 == reshape([1_int16, 2_int16, 3_int16, -4_int16], [2, 2])), "int16")
    call expect(i4 == -7, "int32")
    call expect(all(i8 == reshape([(int(i, int64) * 5000000000_int64, i=1, 6)], [1, 2, 3])), "int64")
    call expect(all(r4 == reshape([(real(i) / 3, i=1, 16)], [2, 2, 2, 2])), "real32")
    call expect(all(reshape(r8, [16]) == [(real(i, real64) / 7, i=1, 16)]), "real64")
    call expect(all(c4 == [(1.0, 2.0), (3.0, 4.0)]), "complex of real32")
    call expect(c8 == (5.0_real64, -6.0_real64), "complex of real64")
    call expect(all(l .eqv. [.true., .false., .false., .true.]), "logical")
    call expect(logical(.not. l1(1) .and. l1(2) .and. l1(3)), "logical of 1 byte")
    call expect(all(text == ["hello", "world"]), "character")
    call expect(all(view == reshape([(real(i, real64), i=1, 16)], [4, 4])), "contiguous part")
    call expect(all(grid(:, 1) == 0) .and. all(grid(:, 6) == 0), "what is beside the part")
    call expect(all(p%id == [1, 2, 3]) .and. all(p%x == [0.5_real64, 1.5_real64, 2.5_real64]), "derived type")
    call expect(all(share(1:2, :) == 7) .and. all(share(0, :) == 0) .and. all(share(3, :) == 0), "global array")
    call expect(all(same == [8, 9]), "replicated")
    print "(a)", "kinds: the same"
  else
    call fill()
    call hf_checkpoint(stop_now)
    call expect(.not. stop_now, "nobody asked to stop")
    call hf_wait("global")
    call hf_wait("nowhere", ierr, errmsg)
    call expect(ierr /= HF_OK .and. index(errmsg, "nowhere") > 0, "wait for no level: "//trim(errmsg))
    call hf_unprotect("share")
    call hf_unprotect("same")
    call go_back()
    print "(a)", "kinds: saved"
  end if
  call hf_finalize()

contains

  subroutine clear()
    i1 = 0
    i2 = 0
    i4 = 0
    i8 = 0
    r4 = 0
    r8 = 0
    c4 = 0
    c8 = 0
    l = .false.
    l1 = .false.
    text = ""
    grid = 0
    share = 0
    same = 0
    p = point(0, 0.0_real64)
  end subroutine

  subroutine fill()
    i1 = [1_int8, -2_int8, 3_int8]
    i2 = reshape([1_int16, 2_int16, 3_int16, -4_int16], [2, 2])
    i4 = -7
    i8 = reshape([(int(i, int64) * 5000000000_int64, i=1, 6)], [1, 2, 3])
    r4 = reshape([(real(i) / 3, i=1, 16)], [2, 2, 2, 2])
    r8 = reshape([(real(i, real64) / 7, i=1, 16)], shape(r8))
    c4 = [(1.0, 2.0), (3.0, 4.0)]
    c8 = (5.0_real64, -6.0_real64)
    l = [.true., .false., .false., .true.]
    l1 = [.false._c_bool, .true._c_bool, .true._c_bool]
    text = ["hello", "world"]
    view = reshape([(real(i, real64), i=1, 16)], [4, 4])
    grid(:, 1) = 99
    share = 7
    same = [8, 9]
    p = [(point(i, i - 0.5_real64), i=1, 3)]
  end subroutine

  ! Goes back to checkpoints with a name in the same process.
  subroutine go_back()
    integer :: version, unit
    character(1000) :: path
    integer(int64) :: count
    logical :: durable
    character(32) :: line

    call get_environment_variable("HOLDFAST_GLOBAL", path)
    path = trim(path)//".log" ! beside the directory
    open (newunit=unit, file=path, status="replace", action="write")
    write (unit, "(a)") "five"
    close (unit)
    call hf_protect_file("log", path)
    i4 = 5
    call hf_keep("main", 3)
    call hf_checkpoint("main", 5)
    i4 = 6
    call hf_checkpoint("main", 6)
    call hf_wait()
    call hf_test(durable, "global")
    call expect(durable, "durable")
    call hf_restart_test("main", version)
    call expect(version == 6, "newest version")
    call hf_restart_test("main", version, at_most=5)
    call expect(version == 5, "version 5")
    call hf_restart_test("other", version)
    call expect(version == -1, "no version")
    i1 = 0
    i4 = 0
    call hf_restart_begin("main", 5)
    call hf_saved("i8", count)
    call expect(count == 6, "saved of i8")
    call hf_saved("none", count)
    call expect(count == -1, "saved of nothing")
    call hf_recover("i4")
    call hf_restart_end()
    call expect(i4 == 5 .and. all(i1 == 0), "one array of version 5")
    open (newunit=unit, file=path, status="replace", action="write")
    close (unit)
    call hf_restart("main", 6)
    call expect(i4 == 6 .and. all(i1 == [1_int8, -2_int8, 3_int8]), "version 6")
    open (newunit=unit, file=path, status="old", action="read")
    read (unit, "(a)") line
    close (unit, status="delete")
    call expect(line == "five", "a file")
    call hf_unprotect("log")
    call go_back_far()
    call hf_restart("main", 7, ierr, errmsg)
    call expect(ierr == HF_E_FAILED .and. index(errmsg, "main") > 0, "no version 7: "//trim(errmsg))
  end subroutine

  ! Versions that need 8 bytes.
  subroutine go_back_far()
    integer(int64), parameter :: far = 3000000000_int64
    integer(int64) :: later
    integer :: version

    i4 = 8
    call hf_checkpoint("far", far)
    call hf_restart_test("far", later)
    call expect(later == far, "a version of 8 bytes")
    call hf_restart_test("far", later, at_most=far - 1)
    call expect(later == -1, "no version below it")
    call hf_restart_test("far", version, ierr=ierr, errmsg=errmsg)
    call expect(ierr == HF_E_FAILED .and. version == -1 .and. index(errmsg, "8") > 0, "4 bytes: "//trim(errmsg))
    i4 = 0
    call hf_restart("far", far)
    call expect(i4 == 8, "restart from a version of 8 bytes")
    call hf_restart_begin("far", far)
    call hf_restart_end()
    call hf_restart_test("main", later, at_most=5_int64)
    call expect(later == 5, "a small version in 8 bytes")
    i4 = 6
  end subroutine

  subroutine expect(holds, what)
    logical, intent(in) :: holds
    character(*), intent(in) :: what

    if (holds) return
    print "(2a)", "kinds: wrong: ", what
    error stop 4
  end subroutine
end program
