// A Go program that gives a hint for memory of its own: pagelab.h and pagelab_kernel.c lie beside this file, and cgo compiles
// them into the program. The pages have the colours asked for, as the pagemap shows; with "without" the kernel has no page
// placement, and the hint is refused.
package main

// #include "pagelab.h"
import "C"

import (
	"encoding/binary"
	"fmt"
	"os"
	"syscall"
	"unsafe"
)

const (
	page   = 4096
	pages  = 300
	colors = 24
)

func check(holds bool, what string, values ...any) {
	if !holds {
		fmt.Fprintf(os.Stderr, what+"\n", values...)
		os.Exit(1)
	}
}

func frameOf(address uintptr) uint64 {
	pagemap, err := os.Open("/proc/self/pagemap")
	check(err == nil, "pagemap: %v", err)
	defer pagemap.Close()
	var entry [8]byte
	_, err = pagemap.ReadAt(entry[:], int64(address/page*8))
	check(err == nil, "pagemap at %x: %v", address, err)
	return binary.LittleEndian.Uint64(entry[:]) & (1<<55 - 1)
}

func main() {
	memory, err := syscall.Mmap(-1, 0, pages*page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	check(err == nil, "mmap: %v", err)
	start := unsafe.Pointer(&memory[0])
	hint := C.struct_pagelab_hint{size: C.uint32_t(unsafe.Sizeof(C.struct_pagelab_hint{})),
		strategy: C.PAGELAB_PAGE_COLORING, colors: colors}
	result := C.pagelab_kernel_set_range(start, pages*page, &hint)
	if len(os.Args) > 1 && os.Args[1] == "without" {
		check(result == -C.EOPNOTSUPP, "set_range: %d", result)
		fmt.Println("ok")
		return
	}
	check(result == 0, "set_range: %d", result)
	for at := 0; at < pages; at++ {
		memory[at*page] = 1
		address := uintptr(start) + uintptr(at*page)
		frame := frameOf(address)
		check(frame != 0 && frame%colors == uint64(address/page)%colors, "page %d has frame %x", at, frame)
	}
	fmt.Println("ok")
}
