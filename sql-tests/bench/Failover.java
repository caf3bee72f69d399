import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.table.functions.FunctionContext;
import org.apache.flink.table.functions.ScalarFunction;

/**
 * Runs a file of Flink SQL, settings first, in a local mini cluster, and lets a task fail for each line that comes on standard input. What the
 * function "watched" sees is printed, with the time in milliseconds since 1970: "FAILED time", "FIRST time" for the first row that an instance of it
 * has, and "NEWEST time id" for the rows of customer 0.
 */
public class Failover {
  /** The next row fails its task. */
  static final AtomicBoolean FAIL = new AtomicBoolean();

  /** Stands between the aggregate and the sink, in their task. */
  public static class Watched extends ScalarFunction {
    private boolean first;

    @Override
    public void open(FunctionContext context) {
      first = true;
    }

    public Long eval(Long customer, Long id) {
      if (FAIL.get() && FAIL.compareAndSet(true, false)) {
        say("FAILED");
        throw new IllegalStateException("a task fails by order");
      }
      if (first) {
        say("FIRST");
        first = false;
      }
      if (customer == 0) say("NEWEST", id);
      return id;
    }
  }

  static void say(String what, Object... more) {
    StringBuilder line = new StringBuilder(what).append(' ').append(System.currentTimeMillis());
    for (Object word : more) line.append(' ').append(word);
    System.out.println(line);
  }

  static void takeOrders() {
    try (BufferedReader orders = new BufferedReader(new InputStreamReader(System.in))) {
      while (orders.readLine() != null) FAIL.set(true);
    } catch (java.io.IOException error) {
      System.err.println(error);
    }
    // Whoever gave the orders is gone.
    System.exit(0);
  }

  public static void main(String[] args) throws Exception {
    Configuration settings = new Configuration();
    TableEnvironment env = null;
    for (String statement : Files.readString(Path.of(args[0])).split(";\\s*\\n")) {
      String sql = statement.strip();
      if (sql.startsWith("SET ")) {
        String[] pair = sql.substring(4).replace("'", "").split("=", 2);
        settings.setString(pair[0].strip(), pair[1].strip());
        continue;
      }
      if (env == null) {
        env = TableEnvironment.create(EnvironmentSettings.newInstance().inStreamingMode().withConfiguration(settings).build());
        env.createTemporarySystemFunction("watched", Watched.class);
      }
      env.executeSql(sql);
    }
    takeOrders();
  }
}
