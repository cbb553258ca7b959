! exported.f90 - a Fortran program calls the VELOC_Init that the library exports, with its own handle.
program exported
    use iso_c_binding
    use mpi
    implicit none
    interface
        integer(c_int) function VELOC_Init(comm, cfg) bind(c, name="VELOC_Init")
            import
            integer(c_int), value :: comm
            character(kind=c_char), intent(in) :: cfg(*)
        end function
        integer(c_int) function VELOC_Finalize(drain) bind(c, name="VELOC_Finalize")
            import
            integer(c_int), value :: drain
        end function
        integer(c_int) function VELOC_Checkpoint(name, version) bind(c, name="VELOC_Checkpoint")
            import
            character(kind=c_char), intent(in) :: name(*)
            integer(c_int), value :: version
        end function
        integer(c_int) function VELOC_Mem_protect(id, ptr, n, bytes) bind(c, name="VELOC_Mem_protect")
            import
            integer(c_int), value :: id
            type(c_ptr), value :: ptr
            integer(c_size_t), value :: n, bytes
        end function
    end interface
    integer :: ierr, bad
    real(8), target :: u(1000)
    character(len=1000) :: cfg
    call MPI_Init(ierr)
    call get_command_argument(1, cfg)
    u = 1
    bad = VELOC_Init(MPI_COMM_WORLD, trim(cfg)//c_null_char)
    if (bad == 0) bad = VELOC_Mem_protect(0, c_loc(u), 1000_c_size_t, 8_c_size_t)
    if (bad == 0) bad = VELOC_Checkpoint("fortran"//c_null_char, 1)
    if (bad == 0) bad = VELOC_Finalize(1)
    call MPI_Finalize(ierr)
    if (bad /= 0) error stop
end program
