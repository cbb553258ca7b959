/* abi-standard.h - types and values of the ABI of MPI 5.0. */
#define HFM_NAME(name) name##_standard

typedef struct MPI_ABI_Comm *MPI_Comm;
typedef struct MPI_ABI_Datatype *MPI_Datatype;
typedef struct MPI_ABI_Request *MPI_Request;
typedef struct MPI_ABI_Message *MPI_Message;
typedef struct MPI_ABI_Group *MPI_Group;
typedef struct MPI_ABI_Op *MPI_Op;
typedef struct MPI_ABI_Info *MPI_Info;
typedef struct MPI_ABI_Errhandler *MPI_Errhandler;
typedef struct MPI_ABI_Win *MPI_Win;
typedef struct MPI_ABI_File *MPI_File;
typedef struct MPI_ABI_Session *MPI_Session;

typedef struct {
	int MPI_SOURCE, MPI_TAG, MPI_ERROR, internal[5];
} MPI_Status;

#define MPI_STATUS_IGNORE ((MPI_Status *)0)
#define MPI_STATUSES_IGNORE ((MPI_Status *)0)
#define MPI_ANY_SOURCE (-1)
#define MPI_ANY_TAG (-2)
#define MPI_PROC_NULL (-3)
#define MPI_UNDEFINED (-32766)
#define MPI_ERR_COUNT 2
#define MPI_ERR_TRUNCATE 15
#define MPI_ERR_IN_STATUS 19
#define MPI_ERR_PENDING 18
#define MPI_MODE_RDONLY 16
#define HFM_MESSAGES_MAKE_COMMS 0
#define HFM_REQUESTS_RAISE 1
#define MPI_THREAD_MULTIPLE 4096

#define MPI_COMM_NULL ((MPI_Comm)0x100)
#define MPI_COMM_WORLD ((MPI_Comm)0x101)
#define MPI_COMM_SELF ((MPI_Comm)0x102)
#define MPI_REQUEST_NULL ((MPI_Request)0x180)
#define MPI_MESSAGE_NULL ((MPI_Message)0x128)
#define MPI_MESSAGE_NO_PROC ((MPI_Message)0x129)
#define MPI_PACKED ((MPI_Datatype)0x207)
#define MPI_BYTE ((MPI_Datatype)0x247)
#define MPI_ERRORS_RETURN ((MPI_Errhandler)0x142)

/* How a datatype was made. */
#define MPI_COMBINER_NAMED 101
#define MPI_COMBINER_DUP 102
#define MPI_COMBINER_CONTIGUOUS 103
#define MPI_COMBINER_VECTOR 104
#define MPI_COMBINER_HVECTOR 105
#define MPI_COMBINER_INDEXED 106
#define MPI_COMBINER_HINDEXED 107
#define MPI_COMBINER_INDEXED_BLOCK 108
#define MPI_COMBINER_HINDEXED_BLOCK 109
#define MPI_COMBINER_STRUCT 110
#define MPI_COMBINER_SUBARRAY 111
#define MPI_COMBINER_DARRAY 112
#define MPI_COMBINER_RESIZED 116
#define MPI_COMBINER_F90_REAL 114
#define MPI_COMBINER_F90_COMPLEX 115
#define MPI_COMBINER_F90_INTEGER 113
#define MPI_ORDER_C 12
#define MPI_ORDER_FORTRAN 15
#define MPI_DISTRIBUTE_BLOCK 17
#define MPI_DISTRIBUTE_CYCLIC 18
#define MPI_DISTRIBUTE_NONE 16
#define MPI_DISTRIBUTE_DFLT_DARG 19
