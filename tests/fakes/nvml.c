/*
 * A pretend libnvidia-ml.so.1: the calls that the collector and k3lib.devices make, answered from a text file named by
 * K3_FAKE_NVML. Structures and numbers as nvidia-ml-py 13 declares them. Lines of the file: "name value" for the
 * machine, "gpu INDEX name value" for a GPU, "process INDEX PID BYTES".
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, UNINITIALIZED = 1, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, GPU_IS_LOST = 15 };
typedef unsigned long long u64;
typedef struct { unsigned version; u64 total, reserved, free, used; } memory_v2;
typedef struct { u64 total, free, used; } memory_v1;
typedef struct { unsigned pid; u64 used; unsigned gpu_instance, compute_instance; } process_info;
typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } pci_info;
typedef struct { unsigned version; unsigned char cluster[16]; int status; unsigned clique; unsigned char state; unsigned health; } fabric_info;

static char lines[4096][160];
static int count = -1;
static const char *no_error_text = "Unknown Error";

static void load(void) {
    const char *path = getenv("K3_FAKE_NVML");
    FILE *file = path ? fopen(path, "r") : NULL;
    count = 0;
    while (file && count < 4096 && fgets(lines[count], sizeof lines[0], file)) {
        lines[count][strcspn(lines[count], "\n")] = 0;
        count++;
    }
    if (file) fclose(file);
}

static const char *value_of(const char *head) {
    size_t length = strlen(head);
    for (int i = 0; i < count; i++)
        if (!strncmp(lines[i], head, length) && lines[i][length] == ' ') return lines[i] + length + 1;
    return NULL;
}

static const char *of_gpu(void *gpu, const char *name) {
    char head[96];
    snprintf(head, sizeof head, "gpu %d %s", (int)((size_t)gpu - 1), name);
    return value_of(head);
}

static int number(void *gpu, const char *name, unsigned *out) {
    const char *told = of_gpu(gpu, name);
    if (!told) return NOT_SUPPORTED;
    *out = (unsigned)strtoul(told, NULL, 0);
    return SUCCESS;
}

static int large(void *gpu, const char *name, u64 *out) {
    const char *told = of_gpu(gpu, name);
    if (!told) return NOT_SUPPORTED;
    *out = strtoull(told, NULL, 0);
    return SUCCESS;
}

static int text(const char *told, char *out, unsigned size) {
    if (!told) return NOT_SUPPORTED;
    snprintf(out, size, "%s", told);
    return SUCCESS;
}

int nvmlInitWithFlags(unsigned flags) {
    load();
    const char *code = value_of("init");
    return code ? atoi(code) : SUCCESS;
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int code) {
    switch (code) {
        case UNINITIALIZED: return "Uninitialized";
        case NOT_SUPPORTED: return "Not Supported";
        case 9: return "Driver Not Loaded";
        case GPU_IS_LOST: return "GPU is lost";
        case 18: return "Driver/library version mismatch";
        default: return no_error_text;
    }
}
int nvmlSystemGetDriverVersion(char *out, unsigned size) { return text(value_of("driver"), out, size); }
int nvmlSystemGetNVMLVersion(char *out, unsigned size) { return text(value_of("nvml"), out, size); }
int nvmlSystemGetCudaDriverVersion(int *out) { const char *v = value_of("cuda"); *out = v ? atoi(v) : 0; return v ? SUCCESS : NOT_SUPPORTED; }
int nvmlDeviceGetCount_v2(unsigned *out) { const char *v = value_of("gpus"); *out = v ? atoi(v) : 0; return SUCCESS; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **out) {
    void *gpu = (void *)(size_t)(index + 1);
    if (of_gpu(gpu, "lost")) return GPU_IS_LOST;
    if (!of_gpu(gpu, "uuid")) return NOT_FOUND;
    *out = gpu;
    return SUCCESS;
}
int nvmlDeviceGetUUID(void *gpu, char *out, unsigned size) { return text(of_gpu(gpu, "uuid"), out, size); }
int nvmlDeviceGetName(void *gpu, char *out, unsigned size) { return text(of_gpu(gpu, "name"), out, size); }
int nvmlDeviceGetVbiosVersion(void *gpu, char *out, unsigned size) { return text(of_gpu(gpu, "vbios"), out, size); }
int nvmlDeviceGetPciInfo_v3(void *gpu, pci_info *out) {
    memset(out, 0, sizeof *out);
    return text(of_gpu(gpu, "pci"), out->bus_id, sizeof out->bus_id);
}
int nvmlDeviceGetMemoryInfo_v2(void *gpu, memory_v2 *out) {
    if (large(gpu, "memory_total", &out->total) || large(gpu, "memory_reserved", &out->reserved) || large(gpu, "memory_used", &out->used)) return NOT_SUPPORTED;
    out->free = out->total - out->reserved - out->used;
    return SUCCESS;
}
int nvmlDeviceGetMemoryInfo(void *gpu, memory_v1 *out) {
    u64 reserved = 0;
    if (large(gpu, "memory_total", &out->total) || large(gpu, "memory_used", &out->used)) return NOT_SUPPORTED;
    large(gpu, "memory_reserved", &reserved);
    out->used += reserved;
    out->free = out->total - out->used;
    return SUCCESS;
}
int nvmlDeviceGetCudaComputeCapability(void *gpu, int *major, int *minor) {
    const char *told = of_gpu(gpu, "capability");
    return told && sscanf(told, "%d.%d", major, minor) == 2 ? SUCCESS : NOT_SUPPORTED;
}
int nvmlDeviceGetMigMode(void *gpu, unsigned *current, unsigned *pending) { int code = number(gpu, "mig", current); *pending = *current; return code; }
int nvmlDeviceGetEccMode(void *gpu, unsigned *current, unsigned *pending) { int code = number(gpu, "ecc", current); *pending = *current; return code; }
int nvmlDeviceGetTotalEccErrors(void *gpu, unsigned type, unsigned counter, u64 *out) {
    return large(gpu, counter ? "ecc_uncorrected_ever" : "ecc_uncorrected", out);
}
int nvmlDeviceGetRemappedRows(void *gpu, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failure) {
    *corrected = 0;
    return number(gpu, "remapped", uncorrected) || number(gpu, "remap_pending", pending) || number(gpu, "remap_failed", failure) ? NOT_SUPPORTED : SUCCESS;
}
int nvmlDeviceGetPersistenceMode(void *gpu, unsigned *out) { return number(gpu, "persistence", out); }
int nvmlDeviceGetComputeMode(void *gpu, unsigned *out) { return number(gpu, "compute_mode", out); }
int nvmlDeviceGetClockInfo(void *gpu, unsigned clock, unsigned *out) { return number(gpu, clock == 2 ? "memory_clock" : "sm_clock", out); }
int nvmlDeviceGetMaxClockInfo(void *gpu, unsigned clock, unsigned *out) { return number(gpu, "sm_clock_max", out); }
int nvmlDeviceGetPowerUsage(void *gpu, unsigned *out) { return number(gpu, "power", out); }
int nvmlDeviceGetEnforcedPowerLimit(void *gpu, unsigned *out) { return number(gpu, "power_limit", out); }
int nvmlDeviceGetTemperature(void *gpu, unsigned sensor, unsigned *out) { return number(gpu, "temperature", out); }
int nvmlDeviceGetCurrentClocksThrottleReasons(void *gpu, u64 *out) { return large(gpu, "throttles", out); }
int nvmlDeviceGetCurrentClocksEventReasons(void *gpu, u64 *out) { return large(gpu, "throttles", out); }
int nvmlDeviceGetUtilizationRates(void *gpu, unsigned *out) { out[1] = 0; return number(gpu, "utilization", out); }
int nvmlDeviceGetNvLinkState(void *gpu, unsigned link, unsigned *out) {
    unsigned total = 0, active = 0;
    if (number(gpu, "links", &total) || link >= total) return NOT_SUPPORTED;
    number(gpu, "links_active", &active);
    *out = link < active;
    return SUCCESS;
}
int nvmlDeviceGetGpuFabricInfoV(void *gpu, fabric_info *out) {
    unsigned state = 0, status = 0, clique = 0;
    if (number(gpu, "fabric_state", &state)) return NOT_SUPPORTED;
    number(gpu, "fabric_status", &status);
    number(gpu, "fabric_clique", &clique);
    const char *hexes = of_gpu(gpu, "fabric_cluster");
    for (int i = 0; hexes && i < 16 && strlen(hexes) >= 32; i++) {
        unsigned byte = 0;
        sscanf(hexes + 2 * i, "%2x", &byte);
        out->cluster[i] = (unsigned char)byte;
    }
    out->state = (unsigned char)state;
    out->status = (int)status;
    out->clique = clique;
    return SUCCESS;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *gpu, unsigned *size, process_info *out) {
    char head[32];
    unsigned found = 0, room = *size;
    snprintf(head, sizeof head, "process %d ", (int)((size_t)gpu - 1));
    for (int i = 0; i < count; i++) {
        unsigned pid;
        u64 bytes;
        if (strncmp(lines[i], head, strlen(head)) || sscanf(lines[i] + strlen(head), "%u %llu", &pid, &bytes) != 2) continue;
        if (out && found < room) out[found] = (process_info){pid, bytes, 0xFFFFFFFF, 0xFFFFFFFF};
        found++;
    }
    *size = found;
    return found > room || (found && !out) ? INSUFFICIENT_SIZE : SUCCESS;
}
