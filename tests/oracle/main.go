// The oracle answers, line by line, what Kubernetes answers: structured.NewAllocator of
// k8s.io/dynamic-resource-allocation for `allocate` lines, its CEL compiler for `cel` lines.
//
// Which Kubernetes is decided when it is built: 1.37 by go.mod, 1.36.4 by `go build -modfile=kubernetes-1.36.4.mod`.
//
// One JSON request per line on standard input, one JSON response per line on standard output, in the same order.
// A line with an "expression" is a CEL request, any other an allocate request; the flags -cel and -allocate pin the
// kind. -measure times allocate lines. -declarations prints the function declarations of the CEL environment instead and exits.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"

	// Time zones by name, where the machine has none.
	_ "time/tzdata"
)

func main() {
	onlyCEL := flag.Bool("cel", false, "every line is a CEL request")
	onlyAllocate := flag.Bool("allocate", false, "every line is an allocate request")
	declarations := flag.Bool("declarations", false, "print the declarations of the CEL environment and exit")
	measure := flag.Bool("measure", false, "answer allocate lines with how long they take instead: p50 and p99 in ns")
	flag.Parse()
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	if *declarations {
		if err := printDeclarations(out); err != nil {
			fatal(err)
		}
		return
	}
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	allocator := newAllocateServer()
	for {
		line, readErr := in.ReadBytes('\n')
		if len(line) > 1 {
			var answer any
			if *measure {
				answer = allocator.measure(line)
			} else if *onlyCEL || (!*onlyAllocate && hasExpression(line)) {
				answer = answerCEL(line)
			} else {
				answer = allocator.answer(line)
			}
			encoded, err := json.Marshal(answer)
			if err != nil {
				fatal(err)
			}
			out.Write(encoded)
			out.WriteByte('\n')
			// A caller that waits for each answer must get it; one that writes ahead is served in batches.
			if in.Buffered() == 0 {
				out.Flush()
			}
		}
		if readErr != nil {
			return
		}
	}
}

func hasExpression(line []byte) bool {
	var probe struct {
		Expression *string `json:"expression"`
	}
	return json.Unmarshal(line, &probe) == nil && probe.Expression != nil
}

func fatal(err error) {
	fmt.Fprintln(os.Stderr, "oracle:", err)
	os.Exit(1)
}
