package tests

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// User-mode Linux of Debian 12 and 13 keeps the floating-point registers of its processes in
// a place of fixed size, and panics at its start on a processor that has more of them, as
// those with AMX have: PTRACE_SETREGSET refuses a part of NT_X86_XSTATE. So it runs under a
// filter that has ptrace know no such registers, and takes the older PTRACE_SETFPREGS. That
// has no AVX registers, so programs inside must not use them: plainProcessor.

// asUML is the variable of a process that is to become user-mode Linux.
const asUML = "SHAPER_TESTS_UML"

// plainProcessor are words for the command line of a kernel, that has them in the environment
// of its first process: the C library and Go leave the AVX registers alone.
var plainProcessor = []string{
	"GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX,-AVX2,-AVX512F,-AVX512VL,-AVX512BW,-AVX_Fast_Unaligned_Load",
	"GODEBUG=cpu.all=off",
}

// umlCommand returns a command that this program runs as withoutXState.
func umlCommand(linux string, args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], append(args, plainProcessor...)...)
	cmd.Env = append(os.Environ(), asUML+"="+linux)
	return cmd
}

// withoutXState becomes a program for which ptrace(2) does not know NT_X86_XSTATE; it
// returns only an error.
func withoutXState(path string, args []string) error {
	const (
		call, request, regset = 0, 16, 24 // where struct seccomp_data has them
		xstate                = 0x202     // NT_X86_XSTATE
	)
	load := func(at uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
	}
	equals := func(k uint32, elseSkip uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: k, Jf: elseSkip}
	}
	returns := func(k uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: k} }
	filter := []unix.SockFilter{
		load(call), equals(unix.SYS_PTRACE, 5),
		load(request), equals(unix.PTRACE_GETREGSET, 3), // the first that it asks: it sets none then
		load(regset), equals(xstate, 1),
		returns(unix.SECCOMP_RET_ERRNO | uint32(unix.ENODEV)),
		returns(unix.SECCOMP_RET_ALLOW),
	}
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("prctl: %w", err)
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&program))); errno != 0 {
		return fmt.Errorf("seccomp: %w", errno)
	}
	return fmt.Errorf("exec: %w", syscall.Exec(path, append([]string{path}, args...), os.Environ()))
}
