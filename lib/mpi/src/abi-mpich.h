/* abi-mpich.h - types and values of MPICH 3 to 5 and of those that share its ABI, whose handles are numbers. */
#define HFM_NAME(name) name##_mpich

typedef int MPI_Comm;
typedef int MPI_Datatype;
typedef int MPI_Request;
typedef int MPI_Message;
typedef int MPI_Group;
typedef int MPI_Op;
typedef int MPI_Info;
typedef int MPI_Errhandler;
typedef int MPI_Win;
typedef int MPI_Session;
typedef struct ADIOI_FileD *MPI_File;

typedef struct {
	int count_lo, count_hi_and_cancelled, MPI_SOURCE, MPI_TAG, MPI_ERROR;
} MPI_Status;

#define MPI_STATUS_IGNORE ((MPI_Status *)1)
#define MPI_STATUSES_IGNORE ((MPI_Status *)1)
#define MPI_ANY_SOURCE (-2)
#define MPI_ANY_TAG (-1)
#define MPI_PROC_NULL (-1)
#define MPI_UNDEFINED (-32766)
#define MPI_ERR_TRUNCATE 14
#define MPI_ERR_IN_STATUS 17
#define MPI_ERR_PENDING 18
#define MPI_MODE_RDONLY 2
#define MPI_THREAD_MULTIPLE 3

#define MPI_COMM_WORLD 0x44000000
#define MPI_COMM_SELF 0x44000001
#define MPI_COMM_NULL 0x04000000
#define MPI_REQUEST_NULL 0x2c000000
#define MPI_MESSAGE_NULL 0x2c000000
#define MPI_MESSAGE_NO_PROC 0x6c000000
#define MPI_PACKED 0x4c00010f
#define MPI_ERRORS_RETURN 0x54000001
