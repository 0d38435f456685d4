/* A driver that never was: one GPU a node, named by the host. Only what `harness.gpu` needs to know it. */

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int device;

int nvmlInitWithFlags(unsigned flags) { (void)flags; return 0; }
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 1; return 0; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle)
{
    *handle = &device;
    return index ? 6 : 0; /* NVML_ERROR_NOT_FOUND */
}

int nvmlDeviceGetUUID(void *handle, char *text, unsigned size)
{
    char host[65] = "";
    (void)handle;
    gethostname(host, sizeof host - 1);
    snprintf(text, size, "GPU-of-%s", host);
    return 0;
}

int nvmlDeviceGetName(void *handle, char *text, unsigned size)
{
    (void)handle;
    snprintf(text, size, "Scripted H200");
    return 0;
}

int nvmlSystemGetDriverVersion(char *text, unsigned size)
{
    snprintf(text, size, "550.0");
    return 0;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle)
{
    (void)uuid;
    *handle = &device;
    return 0;
}

/* Readings: a GPU that runs at its clock, held back by nothing. */
int nvmlDeviceGetClockInfo(void *handle, unsigned which, unsigned *mhz) { (void)handle; (void)which; *mhz = 1980; return 0; }
int nvmlDeviceGetMaxClockInfo(void *handle, unsigned which, unsigned *mhz) { (void)handle; (void)which; *mhz = 1980; return 0; }

int nvmlDeviceGetCurrentClocksEventReasons(void *handle, unsigned long long *reasons)
{
    (void)handle;
    *reasons = 0;
    return 0;
}
