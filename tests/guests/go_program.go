// A Go program maps memory without libc: pagelab must refuse it and say why.
package main

import "fmt"

func main() {
	p := make([]byte, 10_000_000)
	p[9_999_999] = 1
	fmt.Println("ok")
}
