/*
 * Runs steps of the native engine without Python, for a machine that has none: under qemu-user.
 *   native_driver KERNEL WEIGHTS INPUT > logits
 * WEIGHTS is all sections in one file. INPUT is int32: the config with epsilon's bits last, the number of sections and
 * each one's offset in WEIGHTS (-1: none); then steps to the end: tokens, ids, slots, positions, wanted count, wanted.
 * Of each step the wanted rows' logits are written, of the vocabulary's length.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "native.h"

static void *read_all(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END)) exit(3);
    *bytes = ftell(file);
    rewind(file);
    void *data = aligned_alloc(LINE, (*bytes + LINE) / LINE * LINE);
    if (!data || fread(data, 1, *bytes, file) != *bytes) exit(3);
    fclose(file);
    return data;
}

int main(int count, char **arguments)
{
    if (count != 4) return 2;
    size_t weight_bytes, input_bytes;
    const char *weights = read_all(arguments[2], &weight_bytes);
    const int32_t *at = read_all(arguments[3], &input_bytes), *end = at + input_bytes / 4;
    struct native_config config;
    memcpy(&config, at, sizeof config);
    at += sizeof config / 4;
    const void *sections[1024];
    const int section_count = *at++;
    for (int i = 0; i < section_count; i++, at++) sections[i] = *at < 0 ? NULL : weights + *at;
    struct native *native = native_open(&config, sections, arguments[1]);
    if (!native) return 4;
    const int stride = native_stride(native);
    while (at < end) {
        const int tokens = *at++;
        const int32_t *ids = at, *slots = ids + tokens, *positions = slots + tokens;
        const int wanted_count = positions[tokens];
        const int32_t *wanted = positions + tokens + 1;
        float *logits = calloc((size_t)wanted_count * stride + 1, 4), *peaks = calloc(wanted_count + 1, 4);
        int32_t *best = calloc(wanted_count + 1, 4);
        if (native_step(native, tokens, ids, slots, positions, wanted_count, wanted, logits, best, peaks)) return 5;
        for (int i = 0; i < wanted_count; i++) fwrite(logits + (size_t)i * stride, 4, config.vocabulary, stdout);
        free(logits), free(peaks), free(best);
        at = wanted + wanted_count;
    }
    native_close(native);
    return 0;
}
