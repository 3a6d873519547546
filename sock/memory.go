package sock
