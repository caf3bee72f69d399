//! The binary `millpond`; what it does is in [`millpond_server::process`].

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    millpond_server::process::main()
}
