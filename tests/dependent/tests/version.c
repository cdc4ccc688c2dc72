/* Says the version that the linked library has, as a C dependent would use it. */
#include <stdio.h>

#include "nccl_ep.h"

int main(void) {
    int version = -1;
    ncclResult_t result = ncclEpGetVersion(&version);
    printf("%d %d\n", (int)result, version);
    return 0;
}
