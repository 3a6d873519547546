package nft

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// refused says what the kernel has refused; nil if err is.
func refused(op, object string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EOPNOTSUPP):
		return fmt.Errorf("nft: %s %s: %w; the kernel needs nft_tproxy, nft_socket, nft_fib_inet and nft_redir", op, object, err)
	case errors.Is(err, unix.ENETDOWN):
		return fmt.Errorf("nft: %s %s: %w; ip link set lo up", op, object, err)
	}
	return fmt.Errorf("nft: %s %s: %w", op, object, err)
}
