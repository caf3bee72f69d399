"""Apache Flink, as the yardstick: the wheel apache-flink-libraries from PyPI, kept in ~/.cache/nexmark-flink. Needs a JDK 17 and pip."""
import pathlib, subprocess, sys, zipfile

CACHE = pathlib.Path.home() / ".cache" / "nexmark-flink"
VERSION = "2.3.0"
OPENS = ["lang", "net", "io", "nio", "lang.reflect", "text", "time", "util", "util.concurrent", "util.concurrent.atomic", "util.concurrent.locks"]


def home() -> pathlib.Path:
    """Where Flink's lib folder is, downloaded if need be."""
    folder = CACHE / f"flink-{VERSION}"
    if not (folder / "pyflink/lib").is_dir():
        CACHE.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(CACHE), f"apache-flink-libraries=={VERSION}"], check=True)
        with zipfile.ZipFile(next(CACHE.glob(f"apache_flink_libraries-{VERSION}*.whl"))) as wheel:
            wheel.extractall(folder)
    return folder / "pyflink"


def command(source: pathlib.Path, heap: str) -> list[str]:
    """The command that runs a class, compiled if need be."""
    libraries, compiled = f"{home()}/lib/*", CACHE / f"{source.stem}.class"
    if not compiled.exists() or compiled.stat().st_mtime < source.stat().st_mtime:
        subprocess.run(["javac", "-cp", libraries, "-d", str(CACHE), str(source)], check=True)
    opens = [f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in OPENS] + ["--add-opens=java.base/sun.nio.ch=ALL-UNNAMED"]
    return ["java", f"-Xmx{heap}", *opens, "-cp", f"{CACHE}:{libraries}", source.stem]
