/* A libnvidia-ml.so.1 of eight H100 that answers at once, so that a benchmark measures the program and not the fake.
 *
 * It has the functions that a probe of such a machine asks for, with the answers of the fake machine `h100x8`; whatever else
 * is asked for is a symbol that does not exist, as in an older driver. `tests/bench` holds its facts equal to the fake's.
 */

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID = 2, NOT_SUPPORTED = 3, TIMEOUT = 10, COUNT = 8, LINKS = 18 };

typedef unsigned int u32;
typedef unsigned long long u64;
typedef struct { char legacy[16]; u32 domain, bus, device, id, subsystem; char name[32]; } Pci;
typedef struct { u32 version; u64 total, reserved, free, used; } Memory;
typedef struct { u32 version; unsigned char uuid[16]; int status; u32 clique; unsigned char state; u32 health; } Fabric;
typedef struct { u32 field, scope; long long at, took; int type, code; union { u32 number; u64 large; } value; } Field;

static const u32 BUSES[COUNT] = {0x1b, 0x43, 0x52, 0x61, 0x9d, 0xc3, 0xd1, 0xdf};
static char boards[COUNT];

static int index_of(void *board) { return (int)((char *)board - boards); }
static int put(u32 *to, u32 value) { *to = value; return SUCCESS; }

int nvmlInit_v2(void) { return SUCCESS; }
int nvmlInitWithFlags(u32 flags) { (void)flags; return SUCCESS; }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int code) { (void)code; return "an error"; }
int nvmlSystemGetDriverVersion(char *to, u32 size) { snprintf(to, size, "580.95.05"); return SUCCESS; }
int nvmlSystemGetCudaDriverVersion_v2(int *to) { *to = 13000; return SUCCESS; }
int nvmlDeviceGetCount_v2(u32 *to) { return put(to, COUNT); }

int nvmlDeviceGetHandleByIndex_v2(u32 index, void **to) {
    if (index >= COUNT) return INVALID;
    *to = boards + index;
    return SUCCESS;
}

int nvmlDeviceGetUUID(void *board, char *to, u32 size) {
    snprintf(to, size, "GPU-00000000-0000-0000-0000-%012d", index_of(board));
    return SUCCESS;
}

int nvmlDeviceGetName(void *board, char *to, u32 size) {
    (void)board;
    snprintf(to, size, "NVIDIA H100 80GB HBM3");
    return SUCCESS;
}

int nvmlDeviceGetPciInfo_v3(void *board, Pci *to) {
    memset(to, 0, sizeof *to);
    to->bus = BUSES[index_of(board)];
    to->id = 0x233010de;
    to->subsystem = 0x16c110de;
    snprintf(to->name, sizeof to->name, "00000000:%02X:00.0", to->bus);
    snprintf(to->legacy, sizeof to->legacy, "0000:%02X:00.0", to->bus);
    return SUCCESS;
}

int nvmlDeviceGetCudaComputeCapability(void *board, int *major, int *minor) {
    (void)board;
    *major = 9, *minor = 0;
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo_v2(void *board, Memory *to) {
    (void)board;
    to->total = 85520809984ULL, to->reserved = 502267904ULL, to->used = 0, to->free = to->total - to->reserved;
    return SUCCESS;
}

int nvmlDeviceGetMaxClockInfo(void *board, u32 domain, u32 *to) { (void)board; return put(to, domain == 2 ? 2619 : 1980); }
int nvmlDeviceGetMaxCustomerBoostClock(void *board, u32 domain, u32 *to) { (void)board, (void)domain; return put(to, 1980); }
int nvmlDeviceGetTotalEccErrors(void *board, u32 kind, u32 counter, u64 *to) {
    (void)board, (void)kind, (void)counter;
    *to = 0;
    return SUCCESS;
}

#define NUMBER(function, value) int function(void *board, u32 *to) { (void)board; return put(to, value); }
#define PAIR(function, first, second) \
    int function(void *board, u32 *one, u32 *two) { (void)board; *one = first; return put(two, second); }
#define REFUSED(function) int function(void *board, u32 *to) { (void)board, (void)to; return NOT_SUPPORTED; }

NUMBER(nvmlDeviceGetC2cModeInfoV, 0)
NUMBER(nvmlDeviceGetMemoryBusWidth, 5120)
NUMBER(nvmlDeviceGetNumGpuCores, 16896)
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, 700000)
NUMBER(nvmlDeviceGetVirtualizationMode, 0)
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, 5)
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, 5)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, 16)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, 16)
NUMBER(nvmlDeviceGetPersistenceMode, 1)
PAIR(nvmlDeviceGetMigMode, 0, 0)
PAIR(nvmlDeviceGetEccMode, 1, 1)
REFUSED(nvmlDeviceGetNumaNodeId)
REFUSED(nvmlDeviceGetRetiredPagesPendingStatus)

int nvmlDeviceGetCurrentClocksEventReasons(void *board, u64 *to) { (void)board; *to = 1; return SUCCESS; }

int nvmlDeviceGetRetiredPages_v2(void *board, u32 cause, u32 *count, u64 *addresses, u64 *times) {
    (void)board, (void)cause, (void)count, (void)addresses, (void)times;
    return NOT_SUPPORTED;
}

int nvmlDeviceGetRemappedRows(void *board, u32 *corrected, u32 *uncorrectable, u32 *pending, u32 *failed) {
    (void)board;
    *corrected = *uncorrectable = *pending = *failed = 0;
    return SUCCESS;
}

int nvmlDeviceGetNvLinkState(void *board, u32 link, u32 *to) { (void)board; return link < LINKS ? put(to, 1) : INVALID; }
int nvmlDeviceGetNvLinkVersion(void *board, u32 link, u32 *to) { (void)board, (void)link; return put(to, 6); }

int nvmlDeviceGetGpuFabricInfoV(void *board, Fabric *to) {
    (void)board;
    memset(to->uuid, 0, sizeof to->uuid);
    to->status = 0, to->clique = 0, to->state = 3, to->health = 0;
    return SUCCESS;
}

int nvmlDeviceGetFieldValues(void *board, int count, Field *fields) {
    (void)board;
    for (int at = 0; at < count; at++) {
        fields[at].code = fields[at].field == 230 ? SUCCESS : NOT_SUPPORTED;
        fields[at].type = 1;
        fields[at].value.large = 0;
    }
    return SUCCESS;
}

int nvmlEventSetCreate(void **to) { *to = boards; return SUCCESS; }
int nvmlEventSetFree(void *events) { (void)events; return SUCCESS; }
int nvmlDeviceRegisterEvents(void *board, u64 kinds, void *events) { (void)board, (void)kinds, (void)events; return SUCCESS; }
int nvmlEventSetWait_v2(void *events, void *data, u32 milliseconds) {
    (void)events, (void)data;
    usleep(milliseconds * 1000);
    return TIMEOUT;
}
