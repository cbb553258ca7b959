! random.f90: random.c in Fortran, with the same operations for a seed; it protects no requests.
module model
  use, intrinsic :: iso_c_binding, only: c_char, c_int, c_int64_t, c_null_char
  use holdfast
  use mpi_f08
  use base
  use beside
  implicit none

  integer, parameter :: tags_n = 4, large = 20000
  integer, parameter :: plain = 0, isend = 1, issend = 2, bsend = 3, persistent = 4, ssend_init = 5, send_kinds = 6
  integer, parameter :: recv = 0, irecv = 1, probe = 2, mprobe = 3, recv_init = 4, poll = 5, waitany = 6, &
    some = 7, recv_kinds = 8

  type message
    integer :: from, to, comm, tag, count, type, send_kind, recv_kind, send_step, post_step, recv_step
    real(real64), pointer :: out(:) => null(), in(:) => null()
    type(MPI_Request) :: sent, posted
  end type

  type(message), target :: m(0:most - 1)
  integer :: messages = 0, how_third
  integer :: first_index(0:1) ! of MPI_Waitsome and MPI_Testsome: MPICH 4.0 counts from 0 in mpi_f08
  integer :: born(0:comms_n - 1) = 0, gone(0:comms_n - 1), until(0:99)
  type(MPI_Datatype) :: pair, gaps
  integer(int64), target :: total = 0
  integer(int32), target :: last(0:most_ranks * comms_n * tags_n - 1) = 0
  integer(int32), target :: had(0:most - 1) = 0 ! the receive of a message has ended with that of another
  logical :: restored = .false.

contains

  ! Rank of a rank of the world in a communicator: those of the third and of what is made of it have the same parity.
  integer function in_comm(comm, world)
    integer, intent(in) :: comm, world

    in_comm = world
    if (comm == 2 .or. comm == 3) in_comm = (ranks - 1 - world) / 2
  end function

  logical function is_wild(comm, tag)
    integer, intent(in) :: comm, tag

    is_wild = comm == 4 .or. tag == 3
  end function

  subroutine plan(steps)
    integer, intent(in) :: steps
    integer, dimension(0:most_ranks - 1, 0:comms_n - 1, 0:tags_n - 1) :: recv_at, post_at
    integer :: s, n, tag
    logical :: early

    recv_at = 0
    post_at = 0
    state = seed * (-7046029254386353131_int64) + 1
    gone = steps + 1
    born(3) = steps / 4
    gone(3) = steps / 2
    born(4) = steps / 2
    do s = 0, steps - 1
      n = 1 + below(2 * ranks)
      do n = n, 1, -1
        if (messages >= most) exit
        associate (x => m(messages))
          x%from = below(ranks)
          x%to = below(ranks)
          x%comm = below(comms_n)
          x%tag = below(tags_n)
          x%type = below(3)
          if (below(8) == 0) then
            x%count = 2 * (1 + below(large / 2))
          else
            x%count = 2 * (1 + below(20))
          end if
          x%send_kind = below(send_kinds)
          x%recv_kind = below(recv_kinds)
          x%send_step = s
          x%recv_step = s + below(4)
          x%post_step = x%recv_step - below(4)
          if (s < born(x%comm) .or. x%recv_step >= gone(x%comm) .or. x%recv_step >= steps .or. &
              ((x%comm == 2 .or. x%comm == 3) .and. mod(x%from, 2) /= mod(x%to, 2))) cycle
          tag = merge(0, x%tag, x%comm == 4)
          x%recv_step = max(x%recv_step, recv_at(x%to, x%comm, tag))
          if (x%recv_step >= gone(x%comm)) cycle
          early = all(x%recv_kind /= [recv, probe, mprobe])
          if (.not. early) x%post_step = x%recv_step
          x%post_step = min(max(x%post_step, post_at(x%to, x%comm, tag), born(x%comm)), x%recv_step)
          recv_at(x%to, x%comm, tag) = x%recv_step
          post_at(x%to, x%comm, tag) = merge(x%post_step, x%recv_step + 1, x%post_step < x%recv_step)
          if (x%send_kind == plain .and. (x%count > 60 .or. x%from == x%to)) x%send_kind = isend
          if (x%send_kind == bsend .and. x%count > 60) x%send_kind = issend
          x%sent = MPI_REQUEST_NULL
          x%posted = MPI_REQUEST_NULL
        end associate
        messages = messages + 1
      end do
    end do
  end subroutine

  ! What this rank does, in order.
  subroutine list(steps)
    integer, intent(in) :: steps
    integer :: s, c, k, at

    do s = 0, steps
      do c = 3, comms_n - 1
        if (born(c) == s) call add(new, c)
      end do
      do k = 0, messages - 1
        if (m(k)%to == rank .and. m(k)%post_step == s .and. m(k)%post_step < m(k)%recv_step) call add(post, k)
      end do
      call list_starts(s)
      do k = 0, messages - 1
        if (m(k)%from == rank .and. m(k)%send_step == s) call add(send, k)
      end do
      do k = 0, messages - 1
        if (m(k)%to == rank .and. m(k)%recv_step == s) call add(receive, k)
      end do
      do k = 0, messages - 1
        at = m(k)%recv_step + 1
        if (is_wild(m(k)%comm, m(k)%tag)) at = min(gone(m(k)%comm), steps)
        if (m(k)%from == rank .and. at == s) call add(wait_send, k)
      end do
      if (mod(s, 3) == 2) call add(collective, s)
      if (mod(s, 7) == 3) call add(exchange, s)
      call list_ends(s, steps)
      do c = 3, comms_n - 1
        if (gone(c) == s) call add(free, c)
      end do
      until(s) = operations
    end do
  end subroutine

  ! The third communicator, and what is made of it in one of many ways, of the same ranks in the same order.
  subroutine make_third(c)
    type(MPI_Comm), intent(out) :: c
    type(MPI_Comm) :: half, between
    type(MPI_Group) :: all
    type(MPI_Request) :: r
    integer :: at, n

    call MPI_Comm_rank(comms(2), at)
    call MPI_Comm_size(comms(2), n)
    select case (merge(0, how_third, how_third == 4 .and. n < 2))
    case (4)
      call MPI_Comm_split(comms(2), merge(1, 0, at < n / 2), at, half)
      call MPI_Intercomm_create(half, 0, comms(2), merge(n / 2, 0, at < n / 2), 6, between)
      call MPI_Intercomm_merge(between, at >= n / 2, c)
      call MPI_Comm_free(half)
      call MPI_Comm_free(between)
    case (3)
      call MPI_Comm_split_type(comms(2), MPI_COMM_TYPE_SHARED, at, MPI_INFO_NULL, c)
    case (0)
      call MPI_Comm_dup(comms(2), c)
    case (1)
      call MPI_Comm_idup(comms(2), c, r)
      call MPI_Wait(r, MPI_STATUS_IGNORE)
    case default
      call MPI_Comm_group(comms(2), all)
      call MPI_Comm_create_group(comms(2), all, 5, c)
      call MPI_Group_free(all)
    end select
  end subroutine

  subroutine make_comm(c)
    integer, intent(in) :: c
    type(MPI_Comm) :: other
    integer :: i

    if (c == 3) then
      if (.not. restored) then
        call make_third(other)
        call MPI_Comm_free(other)
      end if
      call make_third(comms(3))
      return
    end if
    do i = merge(1, 0, restored), 1
      call MPI_Comm_dup(comms(1), other)
      if (i == 1) call MPI_Comm_split(other, 7, rank, comms(4))
      call MPI_Comm_free(other)
    end do
  end subroutine

  real(real64) function value(k, i)
    integer, intent(in) :: k, i

    value = k
    if (i > 0) value = k * 1000 + mod(i, 997)
  end function

  subroutine send_it(k)
    integer, intent(in) :: k
    type(MPI_Datatype) :: type
    integer :: to, n, stride, i

    associate (x => m(k))
      to = in_comm(x%comm, x%to)
      n = merge(x%count, x%count / 2, x%type == 0)
      stride = merge(2, 1, x%type == 2)
      type = MPI_DOUBLE_PRECISION
      if (x%type == 1) type = pair
      if (x%type == 2) type = gaps
      allocate (x%out(0:stride * x%count - 1))
      x%out = 0
      do i = 0, x%count - 1
        x%out(stride * i) = value(k, i)
      end do
      select case (x%send_kind)
      case (plain)
        call MPI_Send(x%out, n, type, to, x%tag, comms(x%comm))
      case (bsend)
        call MPI_Bsend(x%out, n, type, to, x%tag, comms(x%comm))
      case (isend)
        call MPI_Isend(x%out, n, type, to, x%tag, comms(x%comm), x%sent)
      case (issend)
        call MPI_Issend(x%out, n, type, to, x%tag, comms(x%comm), x%sent)
      case (ssend_init)
        call MPI_Ssend_init(x%out, n, type, to, x%tag, comms(x%comm), x%sent)
        call MPI_Start(x%sent)
      case default
        call MPI_Send_init(x%out, n, type, to, x%tag, comms(x%comm), x%sent)
        call MPI_Start(x%sent)
      end select
    end associate
  end subroutine

  integer function source_of(k)
    integer, intent(in) :: k

    source_of = in_comm(m(k)%comm, m(k)%from)
    if (is_wild(m(k)%comm, m(k)%tag)) source_of = MPI_ANY_SOURCE
  end function

  integer function tag_of(k)
    integer, intent(in) :: k

    tag_of = m(k)%tag
    if (m(k)%comm == 4) tag_of = MPI_ANY_TAG
  end function

  subroutine post_it(k)
    integer, intent(in) :: k

    associate (x => m(k))
      allocate (x%in(0:large - 1))
      x%in = -1
      if (x%recv_kind == recv_init) then
        call MPI_Recv_init(x%in, large, MPI_DOUBLE_PRECISION, source_of(k), tag_of(k), comms(x%comm), x%posted)
        call MPI_Start(x%posted)
      else
        call MPI_Irecv(x%in, large, MPI_DOUBLE_PRECISION, source_of(k), tag_of(k), comms(x%comm), x%posted)
      end if
    end associate
  end subroutine

  ! Finds out which message has come, and whether it is right and in order.
  subroutine check(of, in, st)
    integer, intent(in) :: of
    real(real64), intent(in) :: in(0:)
    type(MPI_Status), intent(in) :: st
    integer :: n, k, i, before

    k = int(in(0))
    call MPI_Get_count(st, MPI_DOUBLE_PRECISION, n)
    if (k < 0 .or. k >= messages) call fail("a message that is none", of)
    if (m(k)%to /= rank .or. m(k)%comm /= m(of)%comm) call fail("a message that is none of this receive", of)
    if (.not. is_wild(m(of)%comm, m(of)%tag) .and. k /= of) call fail("another message", k)
    if (n /= m(k)%count .or. st%MPI_SOURCE /= in_comm(m(k)%comm, m(k)%from) .or. st%MPI_TAG /= m(k)%tag) then
      call fail("source, tag or count", k)
    end if
    do i = 0, n - 1
      if (in(i) /= value(k, i)) call fail("contents", k)
    end do
    before = (m(k)%from * comms_n + m(k)%comm) * tags_n + m(k)%tag
    if (last(before) > k) call fail("overtaken", k)
    last(before) = k + 1
    total = total + worth(k)
  end subroutine

  integer(int64) function worth(k)
    integer, intent(in) :: k

    worth = ishft(int(k + 1, int64) * (-7046029254386353131_int64), -7)
  end function

  ! Waits for a message with others, each the next one of its communicator and tag, and with sends.
  subroutine receive_some(x, st)
    integer, intent(in) :: x
    type(MPI_Status), intent(out) :: st
    integer, parameter :: wide = 8
    type(MPI_Status) :: all(0:wide - 1)
    type(MPI_Request) :: r(0:wide - 1)
    logical :: is_send(0:wide - 1), seen(0:comms_n * tags_n - 1), over
    integer :: of(0:wide - 1), which(wide), n, k, key, sends, out, i, at

    n = 0
    sends = 0
    seen = .false.
    seen(m(x)%comm * tags_n + merge(0, m(x)%tag, m(x)%comm == 4)) = .true.
    call take(x, m(x)%posted, .false.)
    do k = 0, messages - 1
      if (n == wide) exit
      key = m(k)%comm * tags_n + merge(0, m(k)%tag, m(k)%comm == 4)
      if (m(k)%to == rank .and. m(k)%posted /= MPI_REQUEST_NULL .and. .not. seen(key)) then
        seen(key) = .true.
        call take(k, m(k)%posted, .false.)
      else if (m(k)%from == rank .and. m(k)%sent /= MPI_REQUEST_NULL) then
        sends = sends + 1
        if (sends <= 2) call take(k, m(k)%sent, .true.)
      end if
    end do
    over = .false.
    do while (.not. over)
      if (mod(x, 2) == 0) then
        call MPI_Waitsome(n, r, out, which, all)
      else
        call MPI_Testsome(n, r, out, which, all)
      end if
      do i = 1, out
        at = which(i) - first_index(mod(x, 2))
        k = of(at)
        if (is_send(at)) then
          m(k)%sent = r(at)
          cycle
        end if
        m(k)%posted = r(at)
        r(at) = MPI_REQUEST_NULL ! it is freed below
        if (k == x) then
          over = .true.
          st = all(i - 1)
          cycle
        end if
        call check(k, m(k)%in, all(i - 1))
        if (m(k)%posted /= MPI_REQUEST_NULL) call MPI_Request_free(m(k)%posted)
        deallocate (m(k)%in)
        had(k) = 1
      end do
    end do

  contains

    subroutine take(k, request, send)
      integer, intent(in) :: k
      type(MPI_Request), intent(in) :: request
      logical, intent(in) :: send

      of(n) = k
      r(n) = request
      is_send(n) = send
      n = n + 1
    end subroutine
  end subroutine

  ! Gives the right neighbour what the left one gives this rank, in the same memory.
  subroutine exchange_it(s)
    integer, intent(in) :: s
    real(real64) :: v(0:s)
    type(MPI_Status) :: st
    integer :: i, n, left

    left = mod(rank + ranks - 1, ranks)
    do i = 0, s
      v(i) = task_value(s, rank + i)
    end do
    call MPI_Sendrecv_replace(v, s + 1, MPI_DOUBLE_PRECISION, mod(rank + 1, ranks), tags_n, &
      merge(left, MPI_ANY_SOURCE, mod(s, 2) == 0), tags_n, comms(1), st)
    call MPI_Get_count(st, MPI_DOUBLE_PRECISION, n)
    if (n /= s + 1 .or. st%MPI_SOURCE /= left .or. st%MPI_TAG /= tags_n) then
      call fail("source, tag or count of an exchange", s)
    end if
    do i = 0, s
      if (v(i) /= task_value(s, left + i)) call fail("an exchange", s)
    end do
  end subroutine

  subroutine receive_it(k)
    integer, intent(in) :: k
    type(MPI_Status) :: st
    type(MPI_Message) :: matched
    type(MPI_Request) :: two(2)
    logical :: flag
    integer :: n, source, tag

    if (had(k) /= 0) return
    source = source_of(k)
    tag = tag_of(k)
    flag = .false.
    associate (x => m(k), comm => comms(m(k)%comm))
      if (.not. associated(x%in)) allocate (x%in(0:large - 1))
      if (x%posted /= MPI_REQUEST_NULL) then
        if (x%recv_kind == some) then
          call receive_some(k, st)
        else if (x%recv_kind == waitany) then
          two = [MPI_REQUEST_NULL, x%posted]
          call MPI_Waitany(2, two, n, st)
          x%posted = two(2)
          if (n /= 2 .and. n /= 1) call fail("Waitany", k) ! MPICH 4.0 counts from 0 in mpi_f08
        else
          do while (x%recv_kind == poll .and. .not. flag)
            call MPI_Test(x%posted, flag, st)
          end do
          if (.not. flag) call MPI_Wait(x%posted, st)
        end if
        if (x%posted /= MPI_REQUEST_NULL) call MPI_Request_free(x%posted)
      else if (x%recv_kind == probe) then
        call MPI_Probe(source, tag, comm, st)
        call MPI_Get_count(st, MPI_DOUBLE_PRECISION, n)
        call MPI_Recv(x%in, n, MPI_DOUBLE_PRECISION, st%MPI_SOURCE, st%MPI_TAG, comm, st)
      else if (x%recv_kind == mprobe) then
        call MPI_Mprobe(source, tag, comm, matched, st)
        call MPI_Mrecv(x%in, large, MPI_DOUBLE_PRECISION, matched, st)
      else if (x%recv_kind == poll) then
        do while (.not. flag)
          call MPI_Improbe(source, tag, comm, flag, matched, st)
        end do
        call MPI_Mrecv(x%in, large, MPI_DOUBLE_PRECISION, matched, st)
      else
        call MPI_Recv(x%in, large, MPI_DOUBLE_PRECISION, source, tag, comm, st)
      end if
      call check(k, x%in, st)
      deallocate (x%in)
    end associate
  end subroutine

  subroutine collect(s)
    integer, intent(in) :: s
    integer(int64) :: mine, all(0:most_ranks - 1), greatest
    type(MPI_Request) :: r

    mine = total
    if (mod(s, 2) == 0) then
      call MPI_Allgather(mine, 1, MPI_INTEGER8, all, 1, MPI_INTEGER8, comms(1))
      greatest = all(rank)
    else
      call MPI_Iallreduce(mine, greatest, 1, MPI_INTEGER8, MPI_MAX, comms(1), r)
      call MPI_Wait(r, MPI_STATUS_IGNORE)
    end if
    if (greatest < mine) call fail("collective", s)
  end subroutine

  subroutine run(o)
    type(operation), intent(in) :: o

    select case (o%what)
    case (new)
      call make_comm(o%k)
    case (free)
      call MPI_Comm_free(comms(o%k))
    case (post)
      call post_it(o%k)
    case (send)
      call send_it(o%k)
    case (receive)
      call receive_it(o%k)
    case (collective)
      call collect(o%k)
    case (exchange)
      call exchange_it(o%k)
    case (wait_send)
      call MPI_Wait(m(o%k)%sent, MPI_STATUS_IGNORE)
      if (m(o%k)%sent /= MPI_REQUEST_NULL) call MPI_Request_free(m(o%k)%sent)
      if (associated(m(o%k)%out)) deallocate (m(o%k)%out)
    case default
      call run_beside(o)
    end select
  end subroutine

  ! Makes again what a restart has to: communicators that lived, and receives that were pending.
  subroutine redo()
    integer :: i, j
    logical :: over

    do i = 0, pc - 1
      over = .false.
      do j = i, pc - 1
        over = over .or. (ops(j)%k == ops(i)%k .and. ops(j)%what == merge(free, receive, ops(i)%what == new))
      end do
      if (over .or. (ops(i)%what == post .and. had(ops(i)%k) /= 0)) cycle
      if (ops(i)%what == new) call make_comm(ops(i)%k)
      if (ops(i)%what == post) call post_it(ops(i)%k)
    end do
  end subroutine
  ! The name of an array that no program beside this one has.
  function name(what)
    character(*), intent(in) :: what
    character(:), allocatable :: name
    character(12) :: digits

    write (digits, "(i0)") number
    name = trim(digits) // " " // what
  end function

  integer(c_int) function random_begin(world, of_seed, steps, dir, of_number) bind(C) result(n)
    integer(c_int), value :: world, steps, of_number
    integer(c_int64_t), value :: of_seed
    character(kind=c_char), intent(in) :: dir(*)
    character(:), allocatable :: path
    type(MPI_Datatype) :: resized
    type(MPI_Request) :: r(1)
    type(MPI_Status) :: st(1)
    integer :: i, out

    comms(0)%MPI_VAL = world
    seed = of_seed
    number = of_number
    call MPI_Comm_rank(comms(0), rank)
    call MPI_Comm_size(comms(0), ranks)
    call MPI_Comm_dup(comms(0), comms(1))
    call MPI_Comm_split(comms(1), mod(rank, 2), -rank, comms(2))
    call MPI_Type_contiguous(2, MPI_DOUBLE_PRECISION, pair)
    call MPI_Type_vector(2, 1, 2, MPI_DOUBLE_PRECISION, resized)
    call MPI_Type_create_resized(resized, 0_MPI_ADDRESS_KIND, 32_MPI_ADDRESS_KIND, gaps)
    call MPI_Type_commit(pair)
    call MPI_Type_commit(gaps)
    do i = 0, 1
      call MPI_Isend(rank, 0, MPI_INTEGER, MPI_PROC_NULL, 0, comms(0), r(1))
      if (i == 0) call MPI_Waitsome(1, r, out, first_index(0:0), st)
      if (i == 1) call MPI_Testsome(1, r, out, first_index(1:1), st)
    end do
    how_third = int(mod(seed / 2, 5_int64))
    call plan(int(steps))
    call plan_beside(int(steps))
    call list(int(steps))
    path = ""
    i = 1
    do while (dir(i) /= c_null_char)
      path = path // dir(i)
      i = i + 1
    end do
    call open_beside(path, mod(seed, 4_int64) < 2)
    n = operations
  end function

  subroutine random_protect() bind(C)
    call hf_protect(name("sum"), total)
    call hf_protect(name("pc"), pc)
    call hf_protect(name("last"), last)
    call hf_protect(name("had"), had)
    call hf_protect(name("cells"), cells(of_all)%of)
    call hf_protect(name("fenced"), cells(of_fences)%of)
    call hf_protect(name("locked"), cells(of_locks)%of)
    call hf_protect(name("gained"), gained)
    call hf_protect(name("row"), row)
  end subroutine

  integer(c_int) function random_resume(was_restored) bind(C) result(n)
    integer(c_int), value :: was_restored

    restored = was_restored /= 0
    call MPI_Barrier(comms(1)) ! all have their windows' contents
    call MPI_Win_lock_all(0, windows(of_all))
    call redo()
    n = pc
  end function

  subroutine random_step(step, before) bind(C)
    interface
      subroutine before() bind(C)
      end subroutine
      integer(c_int) function raise(signal) bind(C)
        import :: c_int
        integer(c_int), value :: signal
      end function
    end interface
    integer(c_int), value :: step
    integer(c_int), parameter :: sigkill = 9
    integer :: status
    character(200) :: why
    logical :: stop_now

    do while (pc < until(step))
      call before()
      state = seed * 77 + int(rank * 100000 + pc, int64) * (-7046029254386353131_int64) + 1
      if (below(3) == 0) then
        call hf_point(stop_now, status, why)
        if (stop_now) status = raise(sigkill)
        if (status < 0) call fail(trim(why), 0)
      end if
      call run(ops(pc))
      pc = pc + 1
    end do
  end subroutine

  subroutine random_check() bind(C)
    integer(int64) :: want
    integer :: k

    call check_beside()
    want = 0
    do k = 0, messages - 1
      if (m(k)%to == rank) want = want + worth(k)
    end do
    if (total /= want) call fail("the sum of all", 0)
  end subroutine

  subroutine random_close() bind(C)
    call close_beside()
  end subroutine
end module
