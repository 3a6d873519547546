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

// User-mode Linux of Debian 12 and 13 keeps the floating-point registers of its processes in a
// buffer of fixed size. On processors with AMX it panics at its start: the registers do not fit,
// and PTRACE_SETREGSET refuses a part of NT_X86_XSTATE. So it runs under a seccomp filter that
// makes ptrace refuse NT_X86_XSTATE, and then uses the older PTRACE_SETFPREGS. That does not save
// AVX registers, so noAVX keeps programs inside from using them.

// umlEnv is the environment variable that makes a test process become user-mode Linux. Its value is
// the path of linux.uml.
const umlEnv = "SHAPER_TESTS_UML"

// noAVX holds arguments for the kernel's command line. The kernel puts them into the environment of
// its first process, where they keep the C library and Go from using AVX registers.
var noAVX = []string{
	"GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX,-AVX2,-AVX512F,-AVX512VL,-AVX512BW,-AVX_Fast_Unaligned_Load",
	"GODEBUG=cpu.all=off",
}

// umlCommand returns a command that runs user-mode Linux with arguments. It runs this test program,
// which calls withoutXState.
func umlCommand(linux string, args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], append(args, noAVX...)...)
	cmd.Env = append(os.Environ(), umlEnv+"="+linux)
	return cmd
}

// withoutXState replaces this process by a program for which ptrace(2) refuses NT_X86_XSTATE. It
// returns only if that fails.
func withoutXState(path string, args []string) error {
	const (
		call, request, regset = 0, 16, 24 // offsets in struct seccomp_data
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
		load(request), equals(unix.PTRACE_GETREGSET, 3), // if reading fails, user-mode Linux does not set them either
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
